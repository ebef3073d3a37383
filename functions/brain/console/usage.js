// Usage: what the plan allows, what is used, and when it starts anew.

import { get } from "./api.js";
import { h, when } from "./dom.js";

const METERS = {
  turns_today: ["Questions today", (n) => n.toLocaleString()],
  cost_usd_this_month: ["Model cost this month", (n) => n.toLocaleString(undefined, { style: "currency", currency: "USD" })],
  wrap_ups_this_month: ["Wrap-ups this month", (n) => n.toLocaleString()],
  memories: ["Memories", (n) => n.toLocaleString()],
};

export async function usageView() {
  const usage = await get("/v1/usage");
  return h("div", { class: "page" }, h("h1", {}, "Usage"),
    h("p", { class: "lead" }, "Your plan: ", h("strong", {}, usage.tier === "pro" ? "Pro" : "Free")),
    h("ul", { class: "list" }, Object.entries(METERS).map(([name, [label, shown]]) => meter(label, usage[name], shown))));
}

function meter(label, { used, limit, starts_anew_at: anew }, shown) {
  const share = Math.min(1, limit ? used / limit : 1);
  const bar = h("span", { class: share >= 1 ? "bar full" : share >= 0.8 ? "bar high" : "bar" });
  bar.style.width = `${Math.max(share * 100, used > 0 ? 1 : 0)}%`;
  const text = `${shown(used)} of ${shown(limit)}`;
  return h("li", { class: "card" },
    h("div", { class: "row" }, h("span", { class: "title grow" }, label), h("span", {}, text)),
    h("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuenow": String(Math.min(used, limit)),
      "aria-valuemin": "0", "aria-valuemax": String(limit), "aria-valuetext": text }, bar),
    h("small", {}, anew ? ["Starts anew ", when(anew), "."] : "Forget one to make room for another.",
      share >= 1 && " The limit is reached."));
}
