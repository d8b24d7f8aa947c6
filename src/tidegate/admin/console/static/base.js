// What every page uses: texts, numbers, requests to the admin API, tables. Nothing is made of text that could be read as markup.

const textsElement = document.getElementById("texts");
const texts = textsElement ? JSON.parse(textsElement.textContent) : {};
export const language = document.documentElement.lang;
export const readOnly = document.querySelector('meta[name="read-only"]')?.content === "1";
const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

export function t(key, values = {}) {
  let text = texts[key];
  if (text === undefined) throw new Error(`no text ${key}`);
  for (const [name, value] of Object.entries(values)) text = text.replaceAll(`{${name}}`, String(value));
  return text;
}

// ── elements ──

export const find = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

export function show(id, text) {
  const shown = find(id);
  if (shown && shown.textContent !== String(text)) shown.textContent = String(text);
}

export function notice(text, bad = false) {
  const place = find("notice");
  place.textContent = text;
  place.hidden = !text;
  place.classList.toggle("bad", bad);
}

// A text with `code` in it.
export function prose(text) {
  return element("p", {}, ...text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part)));
}

// Columns: {title, cell(row) -> text or node, number: true for figures, long: true for sentences and ids}. On narrow screens each row becomes a block with titles before cells.
export function table(place, columns, rows, { caption = "", empty = t("nothing") } = {}) {
  const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", class: column.number ? "number" : null }, column.title)));
  const body = rows.map((row) =>
    element("tr", {}, ...columns.map((column) => {
      const content = column.cell(row);
      return element("td", { "data-title": column.title, class: column.number ? "number" : column.long ? "long" : null }, content === null || content === undefined || content === "" ? "–" : content);
    })));
  if (!rows.length) body.push(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, empty)));
  place.classList.add("stacks");
  place.replaceChildren(...(caption ? [element("caption", {}, caption)] : []), element("thead", {}, head), element("tbody", {}, ...body));
}

export function badge(text, kind = "") {
  return element("span", { class: `badge ${kind}` }, text);
}

// A bar that says how full something is, with the same in words for those who cannot see it.
export function meter(ratio, label) {
  const bar = element("progress", { max: 1, value: Math.min(1, Math.max(0, ratio)), "aria-label": label, class: ratio >= 0.9 ? "full" : ratio >= 0.7 ? "high" : null });
  return element("span", { class: "meter" }, bar, ` ${percent(ratio)}`);
}

// ── numbers ──

const formats = new Map();
function format(value, options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(language, options));
  return formats.get(key).format(value);
}

const missing = (value) => value === null || value === undefined;
export const integer = (value) => (missing(value) ? "–" : format(value, { maximumFractionDigits: 0 }));
export const percent = (value) => (missing(value) ? "–" : format(value, { style: "percent", maximumFractionDigits: 1 }));
export function rate(value) {
  if (missing(value)) return "–";
  if (value >= 1e5) return format(value, { notation: "compact", maximumFractionDigits: 1 });
  return format(value, { maximumFractionDigits: value >= 100 ? 0 : value >= 1 ? 1 : 2 });
}
export const bytes = (value) => (missing(value) ? "–" : value >= 2 ** 30 ? `${format(value / 2 ** 30, { maximumFractionDigits: 1 })} GiB` : `${format(value / 2 ** 20, { maximumFractionDigits: 1 })} MiB`);
export function seconds(value) {
  if (missing(value)) return "–";
  if (value < 1) return `${format(value * 1000, { maximumFractionDigits: value < 0.01 ? 1 : 0 })} ms`;
  return `${format(value, { maximumFractionDigits: value < 10 ? 2 : 1 })} s`;
}
export function money(micro, currency) {
  if (missing(micro)) return "–";
  const value = micro / 1e6;
  return `${format(value, { minimumFractionDigits: 2, maximumFractionDigits: Math.abs(value) < 1 ? 6 : 2 })}${currency ? ` ${currency}` : ""}`;
}
export const instant = (at) => (missing(at) ? "–" : new Intl.DateTimeFormat(language, { dateStyle: "short", timeStyle: "medium" }).format(new Date(at * 1000)));
// The tables give times in UTC, like `2026-11-04 10:00:00.123`.
export const utcSeconds = (text) => Date.parse(`${text.replace(" ", "T")}Z`) / 1000;

// ── the admin API ──

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  if (method !== "GET") sent["x-tidegate-csrf"] = csrf;
  if (body !== undefined) sent["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", signal });
  if (answer.ok) return answer;
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    error = {};
  }
  if (answer.status === 401 && error.code === "invalid_api_key" && !sent["x-tidegate-key"]) {
    location.assign("/console/login");
    await new Promise(() => {});
  }
  throw new ApiError(answer.status, error.code ?? "", error.message ?? `HTTP ${answer.status}`);
}

export const api = async (path, options) => (await request(path, options)).json();

// Run what a click asks for, and tell when it fails.
export async function attempt(work) {
  try {
    notice("");
    return await work();
  } catch (error) {
    if (error.code === "analytics_off") {
      const place = find("notice");
      place.replaceChildren(...prose(t("analytics_off")).childNodes);
      place.hidden = false;
      place.classList.remove("bad");
    } else {
      notice(t("failed", { reason: error.message }), true);
    }
    return undefined;
  }
}

// Ask in a dialog before what cannot be undone by a click.
export async function sure(text, action) {
  const dialog = find("sure");
  find("sure-text").textContent = text;
  find("sure-yes").textContent = action;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
  return dialog.returnValue === "yes";
}

// Do it now and again, while the page is looked at.
export function repeat(work, everySeconds) {
  let running = false;
  const turn = async () => {
    if (document.hidden || running) return;
    running = true;
    await attempt(work);
    running = false;
  };
  turn();
  return setInterval(turn, everySeconds * 1000);
}

export function query(form) {
  const wanted = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (String(value).trim()) wanted.set(name, String(value).trim());
  return wanted;
}

// A form's values are in the address, so that a view can be shared and come back to.
export function fillFromAddress(form) {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements.namedItem(name);
    if (field instanceof HTMLSelectElement && ![...field.options].some((option) => option.value === value)) continue;
    if (field) field.value = value;
  }
}

export function keepInAddress(wanted) {
  history.replaceState(null, "", `${location.pathname}?${wanted}`);
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
export function showCurl(path, { body, headers = [] } = {}) {
  const place = find("curl");
  const words = ["curl -s -H \"Authorization: Bearer $ADMIN_KEY\"", ...headers.map((each) => `-H ${each}`)];
  if (body !== undefined) words.push(`-d ${quoted(JSON.stringify(body))}`);
  if (place) place.textContent = [...words, quoted(`${location.origin}${path}`)].join(" ");
}
export const headerText = (name, value) => quoted(`${name}: ${value}`);

// ── light and dark ──

find("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `tidegate_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
});

// The figures' address is the one that this browser uses.
const curl = find("curl");
if (curl) curl.textContent = curl.textContent.replace("http://127.0.0.1:8081", location.origin);

// On narrow screens the navigation scrolls; the page that one is on stays in its middle.
const navigation = document.querySelector("nav");
const current = navigation?.querySelector("[aria-current]");
if (current) new ResizeObserver(() => navigation.scrollTo({ left: current.offsetLeft - (navigation.clientWidth - current.offsetWidth) / 2 })).observe(navigation);
