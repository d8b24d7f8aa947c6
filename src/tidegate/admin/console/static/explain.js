// Where a request would go, and why: the report of `tidegate explain`.

import { api, attempt, badge, element, find, integer, showCurl, t, table } from "./base.js";

const list = (words) => element("ul", {}, ...words.map((each) => element("li", {}, each)));

function rules(report) {
  if (!report.explanation.rules.length) return [];
  return [element("section", { class: "card" }, element("h2", {}, t("rules")), ...report.explanation.rules.map((rule) =>
    element("div", {}, element("p", {}, element("b", {}, rule.name), " ", badge(t(rule.held ? "holds" : "does_not_hold"), rule.held ? "good" : "")),
      list(rule.checks.map((check) => `${check.held ? "✓" : "✗"} ${check.wanted} — ${check.found}`)))))];
}

function target(each) {
  const replicas = element("table");
  table(replicas, [
    { title: t("by_replica"), cell: (status) => status.replica },
    { title: t("state"), cell: (status) => badge(t(status.available ? "available" : "not_available"), status.available ? "good" : "bad") },
    { title: t("why"), long: true, cell: (status) => status.why },
  ], each.view.replicas);
  return element("section", { class: "card" },
    element("h2", {}, `${each.view.rank + 1}. ${each.view.upstream} · ${each.view.model}`),
    each.view.why ? element("p", { class: "hint" }, each.view.why) : null,
    replicas,
    ...(each.changes.length ? [element("p", {}, t("body_changes")), list(each.changes.map((change) => element("code", {}, `${change.member}: ${change.instead_of ?? "–"} → ${change.sent ?? "–"}`)))] : []));
}

const typed = () => ({ request: JSON.parse(find("request").value), tier: find("tier").value, feature: find("feature").value, models: find("models").value.split(/[\s,]+/).filter(Boolean) });
function tell() {
  try {
    showCurl("/admin/explain", { body: typed() });
  } catch {
    return; // half a JSON is no command; the one before stays
  }
}
find("ask").addEventListener("input", tell);
tell();
find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const body = typed();
    find("report").replaceChildren();
    const report = await api("/admin/explain", { method: "POST", body });
    const plan = report.explanation.plan;
    const facts = [
      [t("by_route"), report.route], [t("why"), plan.reason || t("as_listed")], [t("rule"), plan.rule], [t("degraded"), plan.degraded],
      [t("first_replica"), report.first_replica], [t("prompt_at_most"), integer(report.prompt_tokens_bound)],
    ].filter(([, value]) => value);
    find("report").replaceChildren(
      element("section", { class: "card" }, element("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]))),
      ...rules(report), ...report.targets.map(target));
  });
});
