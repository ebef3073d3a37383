// Snapshots: what the tools returned, on the day they returned it.

import { call, get, pages } from "./api.js";
import { confirmed, emptyState, h, paged, tell, when } from "./dom.js";

const TOOLS = { query_kpi_trend: "Trend", query_site_data: "Site data", recall_prior_tool_result: "Recalled result", update_customer_brain: "Change of the brain" };

/** The list, or one snapshot whole. */
export async function snapshotsView(id) {
  return id ? one(await get(`/v1/snapshots/${encodeURIComponent(id)}`)) : list();
}

async function list() {
  const row = (item) => h("li", {}, h("a", { class: "card", href: `#/snapshots/${item.id}` },
    h("span", { class: "title" }, title(item), item.is_error && h("span", { class: "tag bad" }, "failed")),
    item.summary && h("span", { class: "muted" }, item.summary),
    h("small", {}, when(item.created_at), ` · in “${item.conversation_title}”`)));
  const nothing = emptyState("No snapshots yet",
    "Each time the advisor looks something up, the result is kept here with its date. Ask it about your members or revenue.");
  return h("div", { class: "page" }, h("h1", {}, "Snapshots"),
    h("p", { class: "lead" }, "What the advisor looked up for you, as it was on that day. It may quote these later, with their date."),
    await paged(pages("/v1/snapshots"), row, nothing));
}

function title(item) {
  const given = Object.entries(item.tool_input).filter(([name, v]) => name !== "content" && v !== null && JSON.stringify(v) !== "{}");
  const told = given.map(([name, v]) => SAID[name]?.(v) ?? `${name} ${typeof v === "object" ? inner(v) : v}`).map((text) => text.replaceAll("_", " "));
  const shown = told.join(", ");
  return `${TOOLS[item.tool_name] ?? label(item.tool_name)}${shown ? `: ${shown.length > 120 ? `${shown.slice(0, 120)}…` : shown}` : ""}`;
}

// What is asked most is said as one would say it.
const SAID = { metric: (v) => v, target: (v) => v, granularity: (v) => `by ${v}`, periods: (v) => `${v} periods`, limit: (v) => `at most ${v}`, filters: (v) => inner(v) };

const inner = (value) => Object.entries(value).filter(([, v]) => v !== null).map(([k, v]) => `${k} ${v}`).join(", ");

function one(item) {
  const remove = async () => {
    const yes = await confirmed({ title: "Delete this snapshot?", action: "Delete snapshot",
      lines: ["The advisor can no longer recall it from your next message on. The answer that used it stays."] });
    if (!yes) return;
    await call("DELETE", `/v1/snapshots/${item.id}`);
    tell("Snapshot deleted.");
    location.hash = "#/snapshots";
  };
  return h("div", { class: "page" },
    h("p", {}, h("a", { href: "#/snapshots" }, "← All snapshots")),
    h("h1", {}, title(item)),
    h("p", { class: "lead" }, "Fetched ", when(item.created_at), item.observed_at && [", data through ", when(item.observed_at)], "."),
    h("p", {}, h("a", { href: `#/chat/${item.conversation_id}?message=${item.message_id}` }, `Open the answer in “${item.conversation_title}”`)),
    ...parts(item.tool_output),
    h("div", { class: "row" }, h("button", { type: "button", class: "danger", onclick: remove }, "Delete snapshot")));
}

/** A stored result: its plain values as a list, its rows as tables. */
function parts(output, heading = "Result", level = 2) {
  const entries = Object.entries(output);
  const isRows = (value) => Array.isArray(value) && value.length > 0 && value.every((row) => row && typeof row === "object" && !Array.isArray(row));
  const plain = entries.filter(([, value]) => !isRows(value));
  const rows = entries.filter(([, value]) => isRows(value));
  return [
    h(`h${level}`, {}, heading),
    plain.length > 0 && h("dl", { class: "facts" }, plain.map(([key, value]) => [h("dt", {}, label(key)), h("dd", {}, shown(value))])),
    ...rows.flatMap(([key, value]) => nested(value)
      ? value.flatMap((row, i) => parts(row, `${label(key)} ${row.currency ?? i + 1}`, Math.min(level + 1, 4)))
      : [table(label(key), value)]),
  ];
}

const nested = (rows) => rows.some((row) => Object.values(row).some((value) => Array.isArray(value) && typeof value[0] === "object"));

function table(caption, rows) {
  const columns = ordered([...new Set(rows.flatMap(Object.keys))]);
  const number = (column) => rows.every((row) => row[column] === null || row[column] === undefined || typeof row[column] === "number");
  const kind = Object.fromEntries(columns.map((column) => [column, number(column) ? "number" : null]));
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, h("table", {},
    h("caption", {}, `${caption} (${rows.length})`),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind[column] }, label(column))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: kind[column] }, shown(row[column]))))))));
}

function shown(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number") return value.toLocaleString();
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(", ") || "–";
  if (typeof value === "object") {
    const inner = Object.entries(value);
    return inner.length ? inner.map(([k, v]) => `${label(k)}: ${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ") : "–";
  }
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value) ? when(value) : String(value);
}

// The database keeps no order of keys: what names a row stands first.
const FIRST = ["name", "email", "from", "to", "value"];
const ordered = (columns) => [...FIRST.filter((one) => columns.includes(one)), ...columns.filter((one) => !FIRST.includes(one))];

const label = (name) => {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
};
