// The playground: one question to the gateway's own API, streamed, with what it took and cost.

import { api, attempt, element, find, headerText, integer, money, request, seconds, showCurl, t } from "./base.js";

let running = null;

const facts = (id, pairs) => find(id).replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

function body() {
  const messages = [];
  if (find("system").value.trim()) messages.push({ role: "system", content: find("system").value });
  messages.push({ role: "user", content: find("prompt").value });
  const sent = { model: find("model").value.trim(), messages, stream: find("stream").checked };
  if (sent.stream) sent.stream_options = { include_usage: true };
  for (const name of ["temperature", "top_p", "max_completion_tokens", "seed"]) if (find(name).value !== "") sent[name] = Number(find(name).value);
  return sent;
}

const context = () => (find("feature").value.trim() ? JSON.stringify({ feature: find("feature").value.trim() }) : "");

// A key that was typed is never in the command.
function tell() {
  const headers = find("api-key").value.trim() || find("api-key").required ? ['"X-Tidegate-Key: $API_KEY"'] : [];
  if (context()) headers.push(headerText("X-Business-Context", context()));
  showCurl("/admin/playground", { body: body(), headers });
}

// Lines of server-sent events; one may come in several pieces.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

// The cost comes with the record, about a second after the end; an answer that is no stream says it in a header.
async function cost(answer) {
  const told = answer.headers.get("x-tidegate-cost-micro");
  if (told) return Number(told);
  const name = answer.headers.get("x-request-id");
  for (let tries = 0; name && tries < 10; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    try {
      return (await api(`/admin/requests/${encodeURIComponent(name)}`)).request.cost_micro;
    } catch (error) {
      if (error.status !== 404) return null;
    }
  }
  return null;
}

async function send() {
  const place = find("answer");
  place.textContent = "";
  facts("took", []);
  facts("headers", []);
  const headers = {};
  if (find("api-key").value.trim()) headers["x-tidegate-key"] = find("api-key").value.trim();
  if (context()) headers["x-business-context"] = context();
  const began = performance.now();
  const since = () => (performance.now() - began) / 1000;
  const sent = body();
  running = new AbortController();
  const answer = await request("/admin/playground", { method: "POST", body: sent, headers, signal: running.signal });
  facts("headers", [...answer.headers].filter(([name]) => name.startsWith("x-") || name === "retry-after" || name === "ratelimit").sort());
  let usage = null;
  let first = null;
  let finish = "";
  const take = (text) => {
    if (text && first === null) first = since();
    if (text) place.append(text);
  };
  if (sent.stream) {
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      take(event.choices?.[0]?.delta?.content);
      finish = event.choices?.[0]?.finish_reason ?? finish;
      usage = event.usage ?? usage;
    }
  } else {
    const whole = await answer.json();
    take(whole.choices?.[0]?.message?.content);
    finish = whole.choices?.[0]?.finish_reason ?? "";
    usage = whole.usage;
  }
  const total = since();
  const shown = [
    ["TTFT", seconds(first)], ["E2E", seconds(total)], ["finish_reason", finish || "–"],
    [t("tokens_in"), integer(usage?.prompt_tokens)], [t("tokens_out"), integer(usage?.completion_tokens)],
    [t("per_token"), seconds(sent.stream && first !== null && usage?.completion_tokens > 1 ? (total - first) / (usage.completion_tokens - 1) : null)],
  ];
  facts("took", [...shown, [t("cost"), t("loading")]]);
  const name = answer.headers.get("x-request-id");
  const { currency } = await api("/admin/overview");
  const micro = await cost(answer);
  const link = name ? [[t("request_id"), element("a", { href: `/console/requests/${encodeURIComponent(name)}` }, name)]] : [];
  facts("took", [...shown, [t("cost"), money(micro, currency)], ...link]);
}

find("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return;
  find("send").disabled = true;
  find("stop").disabled = false;
  await attempt(async () => {
    try {
      await send();
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  });
  running = null;
  find("send").disabled = false;
  find("stop").disabled = true;
});
find("ask").addEventListener("input", tell);
tell();
find("stop").addEventListener("click", () => running?.abort());
