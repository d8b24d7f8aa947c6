// Upstreams and their replicas, with breakers; an operator takes them out of service and back.

import { api, attempt, badge, element, find, integer, readOnly, repeat, sure, t, table } from "./base.js";

const KINDS = { closed: "good", open: "bad", half_open: "warn", soft_open: "warn", soft_half_open: "warn" };

const inService = (replica) => !replica.is_drained && replica.available_in > 0;

// `last`: with this one drained, nothing of its upstream is in service.
function button(name, drained, last) {
  if (readOnly) return null;
  return element("button", {
    type: "button", class: drained ? "small" : "small danger", "aria-label": `${t(drained ? "enable" : "drain")} ${name}`,
    onclick: () => attempt(async () => {
      if (!drained && last && !(await sure(t("drain_sure", { name }), t("drain")))) return;
      await api(`/admin/drained/${name.split("/").map(encodeURIComponent).join("/")}`, { method: drained ? "DELETE" : "PUT" });
      await load();
    }),
  }, t(drained ? "enable" : "drain"));
}

function breakers(replica) {
  return element("span", {}, ...Object.entries(replica.breakers).map(([phase, count]) => badge(replica.workers > 1 ? `${phase} ${count}/${replica.workers}` : phase, KINDS[phase])));
}

function card(upstream) {
  const rows = element("table");
  table(rows, [
    { title: t("by_replica"), cell: (replica) => replica.replica },
    { title: t("state"), cell: (replica) => (replica.is_drained ? badge(t("drained"), "warn") : replica.available_in ? badge(t("available"), "good") : badge(t("not_available"), "bad")) },
    { title: t("breaker"), cell: breakers },
    { title: t("trips"), cell: (replica) => integer(replica.trips), number: true },
    { title: t("in_flight"), cell: (replica) => integer(replica.in_flight), number: true },
    { title: t("why"), long: true, cell: (replica) => [replica.why, replica.last_error].filter(Boolean).join("; ") },
    ...(readOnly ? [] : [{ title: t("action"), cell: (replica) => (upstream.is_drained ? "–" : button(replica.replica, replica.is_drained, !upstream.replicas.some((each) => each !== replica && inService(each)))) }]),
  ], upstream.replicas);
  return element("section", { class: "card" },
    element("div", { class: "heading" },
      element("h2", {}, upstream.name),
      upstream.is_drained ? badge(t("drained"), "warn") : upstream.ready ? badge(t("ready"), "good") : badge(t("not_ready"), "bad"),
      button(upstream.name, upstream.is_drained, true)),
    rows);
}

async function load() {
  const { upstreams } = await api("/admin/upstreams");
  const place = find("upstreams");
  const focused = document.activeElement?.getAttribute("aria-label");
  place.replaceChildren(...(upstreams.length ? upstreams.map(card) : [element("p", { class: "hint" }, t("nothing"))]));
  if (focused) place.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}

repeat(load, 2);
