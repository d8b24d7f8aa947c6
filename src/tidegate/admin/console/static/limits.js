// How full limits and budgets are.

import { api, badge, find, integer, meter, money, repeat, t, table } from "./base.js";

const spans = [[86400, "d"], [3600, "h"], [60, "min"]];
function span(level) {
  if (!level.span_s) return t("at_once");
  const [size, unit] = spans.find(([each]) => level.span_s % each === 0) ?? [1, "s"];
  return `${integer(level.span_s / size)} ${unit}`;
}

repeat(async () => {
  const { limits, currency } = await api("/admin/limits");
  const amount = (level, value) => (level.resource === "cost_micro" ? money(value, currency) : integer(value));
  table(find("limits"), [
    { title: t("limit"), cell: (level) => level.rule },
    { title: t("whose"), long: true, cell: (level) => level.whose },
    { title: t("resource"), cell: (level) => t(`resource_${level.resource}`) },
    { title: t("window"), cell: span },
    { title: t("used"), cell: (level) => `${amount(level, level.ceiling - level.left)} ${t("of")} ${amount(level, level.ceiling)}`, number: true },
    { title: t("full"), cell: (level) => meter(level.ceiling ? 1 - level.left / level.ceiling : 1, `${level.rule} ${level.whose}`) },
    { title: t("mode"), cell: (level) => (level.is_shadow ? badge(t("shadow"), "warn") : t("enforced")) },
  ], limits, { empty: t("no_limits") });
}, 2);
