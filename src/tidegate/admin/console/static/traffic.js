// Traffic by tenant, feature, model, …: a chart of the groups with the most tokens, and a table of all.

import { api, element, fillFromAddress, find, integer, keepInAddress, money, percent, query, repeat, attempt, seconds, showCurl, t, table, rate } from "./base.js";
import { LineChart } from "./charts.js";

const form = find("choose");
const chart = new LineChart(find("chart"), { label: t("chart_tokens"), shown: rate, isLastRunning: true });

function draw(shown) {
  const last = Math.floor(shown.until / shown.step_s) * shown.step_s;
  const steps = [];
  for (let at = last - Math.floor(shown.since_s / shown.step_s) * shown.step_s; at <= last; at += shown.step_s) steps.push(at);
  const drawn = shown.tokens_over_time.filter((row) => row.is_drawn);
  const others = new Map(shown.tokens_over_time.filter((row) => !row.is_drawn).map((row) => [row.at, row.tokens_per_s]));
  const names = [...new Set(drawn.map((row) => row.name))];
  const values = new Map(drawn.map((row) => [`${row.at} ${row.name}`, row.tokens_per_s]));
  const lines = names.map((name) => ({ name: name || "–", values: steps.map((at) => values.get(`${at} ${name}`) ?? 0) }));
  if (others.size) lines.push({ name: t("other"), values: steps.map((at) => others.get(at) ?? 0) });
  chart.draw(steps, lines);
}

async function load() {
  const wanted = query(form);
  const path = `/admin/traffic?${wanted}`;
  keepInAddress(wanted);
  showCurl(path);
  const shown = await api(path);
  draw(shown);
  const tokens = (row) => row.tokens_in + row.tokens_out;
  const { whole } = shown;
  const part = whole?.cost_micro ? (row) => row.cost_micro / whole.cost_micro : (row) => (whole && tokens(whole) ? tokens(row) / tokens(whole) : null);
  table(find("groups"), [
    { title: t(`by_${shown.by}`), cell: (row) => (row === whole ? element("b", {}, t("total")) : row.name) },
    { title: t("requests"), cell: (row) => integer(row.requests), number: true },
    { title: t("errors"), cell: (row) => percent(row.requests ? row.errors / row.requests : 0), number: true },
    { title: t("refused"), cell: (row) => integer(row.refused), number: true },
    { title: t("tokens_in"), cell: (row) => integer(row.tokens_in), number: true },
    { title: t("tokens_cached"), cell: (row) => percent(row.tokens_in ? row.tokens_cached / row.tokens_in : 0), number: true },
    { title: t("tokens_out"), cell: (row) => integer(row.tokens_out), number: true },
    { title: t("tokens"), cell: (row) => integer(tokens(row)), number: true },
    { title: t("cost"), cell: (row) => money(row.cost_micro, shown.currency), number: true },
    { title: t("share"), cell: (row) => percent(part(row)), number: true },
    { title: "TTFT P95", cell: (row) => seconds(row.ttft_p95_s), number: true },
    { title: "E2E P95", cell: (row) => seconds(row.duration_p95_s), number: true },
  ], shown.groups.length && whole ? [...shown.groups, whole] : shown.groups);
}

if (!find("no-tables")) {
  fillFromAddress(form);
  form.addEventListener("change", () => attempt(load));
  form.addEventListener("submit", (event) => event.preventDefault());
  repeat(load, 10);
}
