// An outcome with the colour of what it means.

import { badge } from "./base.js";

const GOOD = new Set(["ok", "served_from_cache"]);
const BAD = new Set(["model_error", "rejected_no_replica", "rejected_overload"]);

export function outcomeBadge(outcome) {
  if (GOOD.has(outcome)) return badge(outcome, "good");
  if (outcome.startsWith("failed_") || BAD.has(outcome)) return badge(outcome, "bad");
  return badge(outcome, outcome.startsWith("rejected_") || outcome === "degraded" ? "warn" : "");
}
