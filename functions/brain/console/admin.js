// The report for admins: how the knowledge base fares, what is watched, and where the move to BigQuery stands.

import { adminGet } from "./api.js";
import { emptyState, h, when } from "./dom.js";

const KEY = "memberintel.admin";
const STEPS = ["retrieved", "surfaced", "cited", "helpful"];
const RANGES = [7, 30, 90, 365];
const NAMES = { ok: "ok", warning: "near", reached: "reached" };

/** Whether the report was read in this tab; only then the page offers it. */
export const isAdmin = () => sessionStorage.getItem(KEY) === "yes";

/** The report of the last 30 days, or of as many as `days` says. */
export async function adminView(days) {
  let report, triggers, cutover;
  const range = RANGES.includes(Number(days)) ? Number(days) : 30;
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try {
    [report, triggers, cutover] = await Promise.all([
      adminGet(`/admin/v1/usage-report?days=${range}&pictures=${scheme}`), adminGet("/admin/v1/triggers"), adminGet("/admin/v1/cutover")]);
  } catch (error) {
    sessionStorage.removeItem(KEY);
    if (error.status !== 401 && error.status !== 403) throw error;
    return notLetIn(error);
  }
  sessionStorage.setItem(KEY, "yes");
  return h("div", { class: "page broad" }, h("h1", {}, "How the knowledge base fares"),
    h("p", { class: "lead" }, "As of ", when(report.as_of), ". Each look is noted. ",
      h("a", { href: `/admin/v1/usage-report?format=csv&days=${range}`, download: true }, "Entries as CSV"), " · ",
      h("a", { href: `/admin/v1/usage-report?days=${range}` }, "JSON")),
    totals(report), trend(report, range), findings(report), entries(report), watched(triggers), move(cutover));
}

function notLetIn(error) {
  return h("div", { class: "page" }, h("h1", {}, "For admins"),
    h("p", { role: "alert" }, error.status === 403 ? "This account may not read the report." : "Nobody has let you in yet."),
    h("p", {}, h("a", { href: "/admin", class: "button primary" }, "Sign in as an admin")),
    h("p", { class: "muted" }, "On your own machine: open the address that ", h("code", {}, "memberintel token --admin"), " prints."));
}

function picture(address, alt, caption) {
  return h("figure", {}, h("img", { src: address, width: "400", height: "230", alt }), h("figcaption", {}, caption));
}

function totals({ totals: sums, pictures }) {
  const told = STEPS.map((name) => `${sums[name]} ${name}`).join(", ");
  return h("section", { class: "card stack", "aria-labelledby": "totals" }, h("h2", { id: "totals" }, "From search to answer"),
    h("dl", { class: "tiles" }, STEPS.map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, sums[name].toLocaleString())))),
    picture(pictures.funnel, `Candidates: ${told}`,
      `Candidates of searches by the steps they took; ${sums.replaced_entries} entries among them were replaced since.`));
}

function trend({ trend: days, pictures }, range) {
  const choice = h("select", { id: "range", onchange: (event) => { location.hash = `#/admin/${event.target.value}`; } },
    RANGES.map((one) => h("option", { value: one, selected: one === range }, `${one} days`)));
  return h("section", { class: "card stack", "aria-labelledby": "trend" },
    h("div", { class: "row" }, h("h2", { id: "trend", class: "grow" }, "By day"),
      h("label", { class: "unseen", for: "range" }, "How far back"), choice),
    picture(pictures.trend, "The four counts by day; the table below has the same", "Counts by day (UTC)."),
    h("details", {}, h("summary", {}, "As a table"), table("Counts by day", ["Day", ...STEPS],
      days.map((day) => [day.day, ...STEPS.map((name) => day[name])]))));
}

function findings({ findings: counts, meanings, pictures }) {
  return h("section", { class: "card stack", "aria-labelledby": "findings" }, h("h2", { id: "findings" }, "What becomes of the entries"),
    picture(pictures.findings, "Entries by finding; the table below has the same counts", "Entries by the first step that they have not taken."),
    table("Findings", ["Finding", "Entries", "What it means"],
      Object.entries(meanings).map(([name, meaning]) => [words(name), counts[name], meaning])));
}

function entries({ entries: all }) {
  const rows = all.map((one) => [one.title, words(one.finding), ...STEPS.map((name) => one[name]), one.unhelpful, one.last_seen_at]);
  return h("section", { class: "card stack", "aria-labelledby": "entries" },
    h("h2", { id: "entries" }, `Entries (${all.length})`), h("p", { class: "muted" }, "Those with thumbs down come first."),
    rows.length ? long((some) => table("Entries", ["Entry", "Finding", ...STEPS, "thumbs down", "last seen"], some), rows)
      : emptyState("No entries", "memberintel ingest fills the knowledge base."));
}

/** A table of the first rows, and on request of all. */
function long(draw, rows, first = 20) {
  if (rows.length <= first) return draw(rows);
  const all = h("button", { type: "button", class: "quiet", onclick: () => {
    const whole = draw(rows);
    few.replaceWith(whole);
    all.remove();
    whole.focus();
  } }, `Show all ${rows.length}`);
  const few = draw(rows.slice(0, first));
  return [few, h("div", { class: "row" }, all)];
}

function watched({ assessed_at: at, triggers }) {
  const state = (name) => h("span", { class: `tag ${name === "ok" ? "" : name === "reached" ? "bad" : "near"}` }, NAMES[name] ?? name);
  return h("section", { class: "card stack", "aria-labelledby": "triggers" }, h("h2", { id: "triggers" }, "Triggers"),
    h("p", { class: "muted" }, at ? ["Measured ", when(at), "."] : "Not measured yet: the nightly run has not been."),
    triggers.length > 0 && table("Triggers", ["What is measured, and what it would have us do", "Value", "Threshold", "State"],
      triggers.map((one) => [one.asks, one.value, `${one.threshold.toLocaleString()} ${one.unit}`, state(one.state)])));
}

function move({ sink, export: exports, comparison, exported }) {
  return h("section", { class: "card stack", "aria-labelledby": "cutover" }, h("h2", { id: "cutover" }, "Move to BigQuery"),
    h("p", {}, `Retrieval events go to: ${sink}. The nightly export is ${exports ? "on" : "off"}.`),
    comparison && h("p", {}, "The sinks were compared ", when(comparison.compared_at), `: switching is ${comparison.safe ? "safe" : "not safe"}.`),
    comparison?.reasons.length > 0 && h("ul", { class: "items" }, comparison.reasons.map((reason) => h("li", {}, reason))),
    exported.length > 0 && table("Exported", ["Table", "Days", "To", "Rows"],
      exported.map((one) => [one.table_name, one.days, one.last_day, one.rows])));
}

/** A table whose first column names its rows; numbers stand right, moments are shown as such. */
function table(caption, columns, rows) {
  const number = columns.map((_, i) => i > 0 && rows.every((row) => typeof row[i] === "number" || row[i] === null));
  const kind = (i) => (number[i] ? "number" : null);
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Table: ${caption}` }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((name, i) => h("th", { scope: "col", class: kind(i) }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, i) =>
      (i ? h("td", { class: kind(i) }, shown(value)) : h("th", { scope: "row" }, shown(value)))))))));
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return value.toLocaleString();
  if (typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value)) return when(value, { day: true });
  return value;
}

const words = (name) => name.replaceAll("_", " ");
