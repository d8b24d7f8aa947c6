// The overview: figures of the last minute and charts, from the live feed; the first minutes of the charts from `/admin/overview`.

import { api, attempt, badge, element, find, integer, money, percent, rate, seconds, show, t, table } from "./base.js";
import { LineChart } from "./charts.js";
import { outcomeBadge } from "./outcome.js";

const MOST = 300;
const history = [];
const charts = {
  tokens: new LineChart(find("chart-tokens"), { label: t("chart_tokens"), shown: rate }),
  requests: new LineChart(find("chart-requests"), { label: t("chart_requests"), shown: rate }),
  latency: new LineChart(find("chart-latency"), { label: t("chart_latency"), shown: seconds }),
};
let currency = "";

function spread(id, given) {
  show(id, seconds(given?.p50_s));
  show(`${id}_p95`, seconds(given?.p95_s));
  show(`${id}_p99`, seconds(given?.p99_s));
}

function draw() {
  const times = history.map((flow) => flow.at);
  const line = (key, choose) => ({ name: t(key), values: history.map(choose) });
  charts.tokens.draw(times, [line("tokens_in", (flow) => flow.tokens_in_per_s), line("tokens_out", (flow) => flow.tokens_out_per_s)]);
  charts.requests.draw(times, [line("requests", (flow) => flow.requests_per_s), line("errors", (flow) => flow.errors_per_s), line("refused", (flow) => flow.refused_per_s)]);
  charts.latency.draw(times, [line("ttft", (flow) => flow.ttft?.p95_s ?? null), line("e2e", (flow) => flow.duration?.p95_s ?? null)]);
}

function take(beat) {
  const { minute } = beat;
  show("tokens_in", rate(minute.tokens_in_per_s));
  show("tokens_cached", rate(minute.tokens_cached_per_s));
  show("tokens_out", rate(minute.tokens_out_per_s));
  show("requests", rate(minute.requests_per_s));
  show("running", integer(beat.requests_running));
  show("errors", rate(minute.errors_per_s));
  show("refused", rate(minute.refused_per_s));
  show("cost", money(minute.cost_micro_per_s * 3600, currency));
  spread("ttft", minute.ttft);
  spread("e2e", minute.duration);
  spread("per_token", minute.per_token);
  show("workers", `${beat.workers_ready} ${t("of")} ${beat.workers}`);
  find("trouble").hidden = !beat.trouble.length;
  find("trouble-list").replaceChildren(...beat.trouble.map((words) => element("li", {}, words)));
  const ended = Object.entries(minute.outcomes).sort((one, other) => other[1] - one[1]);
  const all = ended.reduce((sum, [, count]) => sum + count, 0);
  table(find("outcomes"), [
    { title: t("outcome"), cell: ([outcome]) => outcomeBadge(outcome) },
    { title: t("count"), cell: ([, count]) => integer(count), number: true },
    { title: t("share"), cell: ([, count]) => percent(count / all), number: true },
  ], ended);
  table(find("upstreams"), [
    { title: t("upstream"), cell: (each) => each.name },
    { title: t("state"), cell: (each) => (beat.drained.includes(each.name) ? badge(t("drained"), "warn") : each.ready ? badge(t("ready"), "good") : badge(t("not_ready"), "bad")) },
    { title: t("in_flight"), cell: (each) => integer(each.in_flight), number: true },
  ], beat.upstreams);
}

function follow() {
  const feed = new EventSource("/admin/events");
  const live = find("live");
  feed.addEventListener("open", () => {
    live.textContent = t("live");
    live.className = "badge good";
  });
  feed.addEventListener("beat", (event) => {
    const beat = JSON.parse(event.data);
    if (history.length && beat.at <= history[history.length - 1].at) return;
    history.push(beat.now);
    if (history.length > MOST) history.shift();
    take(beat);
    draw();
  });
  feed.addEventListener("error", () => {
    live.textContent = t("not_live");
    live.className = "badge bad";
    if (feed.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
}

await attempt(async () => {
  const overview = await api("/admin/overview");
  currency = overview.currency;
  history.push(...overview.history);
  take(overview.latest);
  draw();
  follow();
});
