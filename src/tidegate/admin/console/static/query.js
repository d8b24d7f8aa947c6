// Questions to the tables: those with names, and SQL.

import { api, attempt, element, find, rate, showCurl, t, table } from "./base.js";

let questions = [];
const chosen = () => questions.find((each) => each.name === find("question").value);

function cell(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString(document.documentElement.lang) : String(Number(value.toPrecision(6)));
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

function section(each) {
  const { answer } = each;
  const rows = element("table");
  const isNumber = answer.types.map((type) => /Int|Float|Decimal/.test(type));
  table(rows, answer.columns.map((title, index) => ({ title, cell: (row) => cell(row[index]), number: isNumber[index] })), answer.rows);
  return element("section", { class: "card" },
    each.title ? element("h2", {}, each.title) : null,
    each.sentence ? element("p", {}, each.sentence) : null,
    answer.columns.length ? element("div", { class: "scroll" }, rows) : null,
    answer.truncated ? element("p", { class: "notice bad" }, t("truncated")) : null,
    answer.columns.length ? element("p", { class: "hint" }, t("rows_read", { rows: cell(answer.rows_read), ms: rate(answer.elapsed_s * 1000) })) : null);
}

async function ask(body) {
  showCurl("/admin/query", { body });
  find("answer").replaceChildren(element("p", { class: "hint" }, t("loading")));
  try {
    const { sections } = await api("/admin/query", { method: "POST", body });
    find("answer").replaceChildren(...sections.map(section));
  } catch (error) {
    find("answer").replaceChildren();
    throw error;
  }
}

function choose() {
  const question = chosen();
  if (!question) return;
  find("sentence").textContent = question.sentence;
  find("by").replaceChildren(...question.by.map((each) => element("option", {}, each)));
  find("by-field").hidden = !question.by.length;
  find("id-field").hidden = question.name !== "request";
  find("filter-field").hidden = !question.filters.length;
}

function named() {
  const filters = Object.fromEntries(find("filters").value.split(",").map((each) => each.split("=").map((part) => part.trim())).filter(([name, value]) => name && value));
  return { question: find("question").value, since: find("since").value, by: find("by").value, request_id: find("request_id").value, filters };
}
const own = () => ({ sql: find("sql").value });

find("question").addEventListener("change", choose);
find("named").addEventListener("input", () => showCurl("/admin/query", { body: named() }));
find("named").addEventListener("change", () => showCurl("/admin/query", { body: named() }));
find("own").addEventListener("input", () => showCurl("/admin/query", { body: own() }));
find("named").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => ask(named()));
});
find("own").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => ask(own()));
});
find("sql").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("own").requestSubmit();
});
await attempt(async () => {
  ({ questions } = await api("/admin/questions"));
  find("question").replaceChildren(...questions.map((each) => element("option", {}, each.name)));
  choose();
  showCurl("/admin/query", { body: named() });
});
