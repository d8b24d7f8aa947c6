// The latest requests, followed while the box is ticked; each leads to its own page.

import { api, attempt, element, fillFromAddress, find, instant, integer, keepInAddress, money, query, repeat, seconds, showCurl, t, table, utcSeconds } from "./base.js";
import { outcomeBadge } from "./outcome.js";

const form = find("choose");

async function load() {
  const wanted = query(form);
  const path = `/admin/requests?${wanted}`;
  keepInAddress(wanted);
  sessionStorage.setItem("tidegate_requests", wanted);
  showCurl(path);
  const shown = await api(path);
  table(find("requests"), [
    { title: t("started"), cell: (row) => element("a", { href: `/console/requests/${encodeURIComponent(row.request_id)}?at=${utcSeconds(row.started_at)}` }, instant(utcSeconds(row.started_at))) },
    { title: t("outcome"), cell: (row) => outcomeBadge(row.outcome) },
    { title: t("by_tenant"), cell: (row) => row.tenant },
    { title: t("by_feature"), cell: (row) => row.feature },
    { title: t("by_model"), cell: (row) => row.model },
    { title: t("by_replica"), cell: (row) => row.replica },
    { title: t("tokens_in"), cell: (row) => integer(row.prompt_tokens), number: true },
    { title: t("tokens_out"), cell: (row) => integer(row.completion_tokens), number: true },
    { title: t("cost"), cell: (row) => money(row.cost_micro, shown.currency), number: true },
    { title: "TTFT", cell: (row) => seconds(row.ttft_s), number: true },
    { title: "E2E", cell: (row) => seconds(row.duration_s), number: true },
  ], shown.requests);
}

if (!find("no-tables")) {
  fillFromAddress(form);
  form.addEventListener("change", () => attempt(load));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(load);
  });
  attempt(load);
  repeat(async () => {
    if (find("follow").checked && !form.contains(document.activeElement)) await load();
  }, 2);
}
