// One request over the four levels: what the business said of it, the gateway, the model servers, and the machines around it.

import { api, attempt, badge, bytes, element, find, instant, integer, money, percent, rate, seconds, showCurl, t, table, utcSeconds } from "./base.js";
import { LineChart, timeline } from "./charts.js";
import { outcomeBadge } from "./outcome.js";

function facts(id, pairs) {
  find(id).replaceChildren(...pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== "–").flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// Where each attempt began and how long it took is measured; the time before the first of them was the gateway's.
function bars(request, attempts) {
  const total = request.duration_s;
  const rows = [{ name: t("whole"), start: 0, end: total, kind: "" }];
  const first = attempts.length ? Math.min(total, attempts[0].began_s) : total;
  if (first > 0) rows.push({ name: t("in_gateway"), start: 0, end: first, kind: "wait", inner: true });
  for (const each of attempts) {
    const at = Math.min(total, each.began_s);
    const end = Math.min(total, at + each.duration_s);
    rows.push({ name: `${t("attempt")} ${each.attempt} · ${each.replica}`, start: at, end, kind: each.result === "ok" ? "attempt" : "failed" });
    let phase = at + (each.connect_s ?? 0);
    if (each.connect_s) rows.push({ name: t("connect"), start: at, end: phase, kind: "wait", inner: true });
    for (const [key, kind] of [["queue_s", "queue"], ["prefill_s", "prefill"], ["decode_s", "decode"]]) {
      if (each[key]) {
        rows.push({ name: t(kind), start: phase, end: Math.min(end, phase + each[key]), kind, inner: true });
        phase += each[key];
      }
    }
    if (!each.prefill_s && !each.decode_s && each.first_token_s) {
      rows.push({ name: t("until_first_token"), start: at, end: at + each.first_token_s, kind: "prefill", inner: true });
      rows.push({ name: t("after_first_token"), start: at + each.first_token_s, end, kind: "decode", inner: true });
    }
  }
  return rows;
}

// A name says its unit by how it ends; `_per_s` is a rate and no duration.
function shownAs(metric) {
  if (metric.endsWith("_bytes_per_s")) return (value) => `${bytes(value)}/s`;
  if (metric.endsWith("_per_s")) return (value) => `${rate(value)}/s`;
  if (metric.endsWith("_ratio")) return percent;
  if (metric.endsWith("_s")) return seconds;
  return metric.endsWith("_bytes") ? bytes : rate;
}

function samples(rows, band, reached) {
  const place = find("samples");
  const groups = Map.groupBy ? Map.groupBy(rows, (row) => row.metric) : rows.reduce((map, row) => map.set(row.metric, [...(map.get(row.metric) ?? []), row]), new Map());
  if (!groups.size) {
    place.replaceChildren(element("p", { class: "hint" }, reached ? t("no_samples") : t("reached_none")));
    return;
  }
  place.className = "charts";
  place.replaceChildren();
  for (const [metric, found] of [...groups].sort()) {
    const holder = element("div", { class: "chart" });
    place.append(element("figure", {}, element("figcaption", {}, metric), holder));
    const names = [...new Set(found.map((row) => [row.replica, row.device].filter(Boolean).join(" ") || t("machine")))];
    const times = [...new Set(found.map((row) => utcSeconds(row.at)))].sort((one, other) => one - other);
    const values = new Map(found.map((row) => [`${utcSeconds(row.at)} ${[row.replica, row.device].filter(Boolean).join(" ") || t("machine")}`, row.value]));
    new LineChart(holder, { label: metric, shown: shownAs(metric) })
      .draw(times, names.map((name) => ({ name, values: times.map((at) => values.get(`${at} ${name}`) ?? null) })), band);
  }
}

const view = sessionStorage.getItem("tidegate_requests");
if (view) find("back").href = `/console/requests?${view}`;

await attempt(async () => {
  if (find("no-tables")) return;
  const at = new URLSearchParams(location.search).get("at");
  const path = `/admin/requests/${encodeURIComponent(decodeURIComponent(location.pathname.split("/").pop()))}${at ? `?at=${at}` : ""}`;
  showCurl(path);
  const { request, attempts, samples: measured, currency } = await api(path);
  find("found").hidden = false;
  facts("business", [
    [t("by_tenant"), request.tenant], [t("by_user"), request.user], [t("by_tier"), request.tier], [t("by_feature"), request.feature],
    [t("by_color"), request.color], [t("by_key"), request.key_id], ...Object.entries(request.context ?? {}).filter(([name]) => name !== "feature"),
  ]);
  timeline(find("timeline"), bars(request, attempts), { total: request.duration_s, label: t("level_gateway"), shown: seconds });
  facts("facts", [
    [t("started"), instant(utcSeconds(request.started_at))], [t("outcome"), outcomeBadge(request.outcome)], [t("status"), String(request.status)],
    [t("cause"), request.cause], [t("error"), request.error_code], [t("by_model"), request.model], [t("by_route"), request.route],
    [t("rule"), request.rule], [t("degraded"), request.degraded], ["TTFT", seconds(request.ttft_s)], [t("per_token"), seconds(request.tpot_s)],
    ["E2E", seconds(request.duration_s)], [t("in_gateway"), seconds(request.gateway_s)],
    [t("tokens_in"), `${integer(request.prompt_tokens)} (${t("tokens_cached")} ${integer(request.cached_tokens)})`],
    [t("tokens_out"), integer(request.completion_tokens)], [t("cost"), money(request.cost_micro, currency)], [t("evidence"), request.evidence], [t("trace"), request.trace_id],
  ]);
  table(find("attempts"), [
    { title: t("attempt"), cell: (row) => integer(row.attempt), number: true },
    { title: t("by_replica"), cell: (row) => row.replica },
    { title: t("by_model"), cell: (row) => row.model },
    { title: t("outcome"), cell: (row) => badge(row.result, row.result === "ok" ? "good" : "bad") },
    { title: t("connect"), cell: (row) => seconds(row.connect_s), number: true },
    { title: t("queue"), cell: (row) => seconds(row.queue_s), number: true },
    { title: t("prefill"), cell: (row) => seconds(row.prefill_s), number: true },
    { title: t("decode"), cell: (row) => seconds(row.decode_s), number: true },
    { title: "TTFT", cell: (row) => seconds(row.first_token_s), number: true },
    { title: t("whole"), cell: (row) => seconds(row.duration_s), number: true },
    { title: t("upstream_request"), long: true, cell: (row) => row.upstream_request_id },
  ], attempts, { empty: t("reached_none") });
  const began = utcSeconds(request.started_at);
  samples(measured, [began, began + request.duration_s], attempts.length > 0);
});
