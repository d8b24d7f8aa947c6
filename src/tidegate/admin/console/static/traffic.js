// Traffic by tenant, feature, model, …: a chart of the groups with the most tokens, and a table of all.

import { api, find, integer, money, percent, query, repeat, attempt, seconds, showCurl, t, table, rate } from "./base.js";
import { LineChart } from "./charts.js";

const form = find("choose");
const chart = new LineChart(find("chart"), { label: t("chart_tokens"), shown: rate });

function draw(shown) {
  const last = Math.floor(shown.until / shown.step_s) * shown.step_s;
  const steps = [];
  for (let at = last - Math.floor(shown.since_s / shown.step_s) * shown.step_s; at <= last; at += shown.step_s) steps.push(at);
  const names = [...new Set(shown.tokens_over_time.map((row) => row.name))];
  const values = new Map(shown.tokens_over_time.map((row) => [`${row.at} ${row.name}`, row.tokens_per_s]));
  chart.draw(steps, names.map((name) => ({ name: name || "–", values: steps.map((at) => values.get(`${at} ${name}`) ?? 0) })));
}

async function load() {
  const wanted = query(form);
  const path = `/admin/traffic?${wanted}`;
  showCurl(path);
  const shown = await api(path);
  draw(shown);
  const all = shown.groups.reduce((sum, row) => sum + row.cost_micro, 0);
  table(find("groups"), [
    { title: t(`by_${shown.by}`), cell: (row) => row.name },
    { title: t("requests"), cell: (row) => integer(row.requests), number: true },
    { title: t("errors"), cell: (row) => percent(row.requests ? row.errors / row.requests : 0), number: true },
    { title: t("refused"), cell: (row) => integer(row.refused), number: true },
    { title: t("tokens_in"), cell: (row) => integer(row.tokens_in), number: true },
    { title: t("tokens_cached"), cell: (row) => percent(row.tokens_in ? row.tokens_cached / row.tokens_in : 0), number: true },
    { title: t("tokens_out"), cell: (row) => integer(row.tokens_out), number: true },
    { title: t("cost"), cell: (row) => money(row.cost_micro, shown.currency), number: true },
    { title: t("share"), cell: (row) => percent(all ? row.cost_micro / all : null), number: true },
    { title: "TTFT P95", cell: (row) => seconds(row.ttft_p95_s), number: true },
    { title: "E2E P95", cell: (row) => seconds(row.duration_p95_s), number: true },
  ], shown.groups);
}

if (!find("no-tables")) {
  form.addEventListener("change", () => attempt(load));
  form.addEventListener("submit", (event) => event.preventDefault());
  repeat(load, 10);
}
