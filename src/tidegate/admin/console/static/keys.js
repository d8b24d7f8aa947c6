// API keys: make, list, rotate, revoke. A fresh token is shown once, in a dialog, and is nowhere else.

import { api, attempt, badge, element, find, instant, integer, readOnly, sure, t, table } from "./base.js";

function show(token) {
  find("token-text").textContent = token.key;
  find("token").showModal();
}

const change = (path, options) => attempt(async () => {
  const answer = await api(path, options);
  if (answer.key) show(answer);
  await load();
  return answer;
});

async function rotate(key) {
  if (await sure(t("rotate_sure", { name: key.name }), t("rotate"))) await change(`/admin/keys/${encodeURIComponent(key.key_id)}/rotate`, { method: "POST", body: { grace_s: 3600 } });
}

async function revoke(key) {
  if (await sure(t("revoke_sure", { name: key.name }), t("revoke"))) await change(`/admin/keys/${encodeURIComponent(key.key_id)}`, { method: "DELETE" });
}

function limits(key) {
  const own = [[key.tokens_per_minute, t("tokens_per_minute")], [key.requests_per_minute, t("requests_per_minute")], [key.concurrency, t("concurrency")]];
  return own.filter(([ceiling]) => ceiling !== null).map(([ceiling, unit]) => `${integer(ceiling)} ${unit}`).join(", ") || t("of_tier");
}

function actions(key) {
  if (key.state !== "active") return "–";
  return element("span", { class: "actions" },
    element("button", { type: "button", class: "small", onclick: () => rotate(key), "aria-label": `${t("rotate")} ${key.name}` }, t("rotate")),
    element("button", { type: "button", class: "small danger", onclick: () => revoke(key), "aria-label": `${t("revoke")} ${key.name}` }, t("revoke")));
}

async function load() {
  const { keys } = await api("/admin/keys");
  const shown = keys.filter((key) => find("all").checked || key.state === "active");
  table(find("keys"), [
    { title: t("by_key"), cell: (key) => element("code", {}, key.key_id) },
    { title: t("key_name"), cell: (key) => element("span", {}, key.name, " ", key.admin ? badge(key.read_only ? `${t("admin")}, ${t("read_only")}` : t("admin"), "warn") : "") },
    { title: t("by_tenant"), cell: (key) => key.tenant },
    { title: t("by_user"), cell: (key) => key.user },
    { title: t("by_tier"), cell: (key) => key.tier },
    { title: t("page_limits"), cell: limits },
    { title: t("models"), cell: (key) => key.models.join(" ") },
    { title: t("state"), cell: (key) => badge(t(`state_${key.state}`), key.state === "active" ? "good" : "") },
    { title: t("created"), cell: (key) => instant(key.created_at) },
    ...(readOnly ? [] : [{ title: t("action"), cell: actions }]),
  ], shown);
}

find("create").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const fields = new FormData(form);
  const body = { name: fields.get("name"), tenant: fields.get("tenant"), tier: fields.get("tier"), models: fields.get("models").split(/[\s,]+/).filter(Boolean) };
  if (fields.get("user").trim()) body.user = fields.get("user");
  for (const name of ["tokens_per_minute", "requests_per_minute", "concurrency"]) if (fields.get(name)) body[name] = Number(fields.get(name));
  if (fields.get("expires_in_days")) body.expires_in_s = Number(fields.get("expires_in_days")) * 86400;
  for (const name of ["admin", "read_only"]) if (fields.get(name)) body[name] = true;
  if (await change("/admin/keys", { method: "POST", body })) form.reset();
});
find("copy").addEventListener("click", () => attempt(() => navigator.clipboard.writeText(find("token-text").textContent)));
find("done").addEventListener("click", () => find("token").close());
find("token").addEventListener("close", () => {
  find("token-text").textContent = "";
});
find("all").addEventListener("change", () => attempt(load));
attempt(load);
