// Your data: everything as a file, and the erasure of everything.

import { call, forgetToken, send } from "./api.js";
import { announce, confirmed, fill, h, problemNote, tell, when } from "./dom.js";

export async function dataView() {
  return h("div", { class: "page" }, h("h1", {}, "Your data"),
    h("p", { class: "lead" }, "What is stored of you is yours to take and to delete."), exportCard(), eraseCard());
}

function exportCard() {
  const problem = problemNote();
  const button = h("button", { type: "button", class: "primary", onclick: async () => {
    button.disabled = true;
    announce("Collecting your data.");
    try {
      const response = await send("GET", "/v1/me/export");
      const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1] ?? "memberintel.json";
      const address = URL.createObjectURL(await response.blob());
      h("a", { href: address, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
      tell("The file is ready.");
    } catch (error) {
      problem.say(error.message);
    }
    button.disabled = false;
  } }, "Download everything");
  return h("section", { class: "card stack", "aria-label": "Export" }, h("h2", {}, "Take it with you"),
    h("p", {}, "One JSON file with every row that is stored about you: conversations, snapshots, wrap-ups, memories, documents, site data and usage."),
    problem.element, h("div", { class: "row" }, button));
}

function eraseCard() {
  const problem = problemNote();
  const card = h("section", { class: "card stack", "aria-label": "Erasure" });
  const erase = async () => {
    const yes = await confirmed({
      title: "Erase everything?",
      lines: ["This deletes your conversations, snapshots, wrap-ups, memories, documents and feedback, and the sites with their members, plans and transactions.",
        "It cannot be undone, and you can no longer sign in with this sign-in. Download your data first if you want to keep it."],
      action: "Erase everything", typed: "ERASE",
    });
    if (!yes) return;
    try {
      const { data } = await call("DELETE", "/v1/me");
      forgetToken();
      receipt(card, data);
    } catch (error) {
      problem.say(error.message);
    }
  };
  fill(card, h("h2", {}, "Erase everything"),
    h("p", {}, "Deletes all that is stored about you, at once and for good. You get a receipt that counts what went."),
    problem.element, h("div", { class: "row" }, h("button", { type: "button", class: "danger", onclick: erase }, "Erase everything…")));
  return card;
}

/** What the erasure says it did; the page shows whatever the receipt holds. */
function receipt(card, data) {
  const told = Object.entries(data ?? {}).filter(([, value]) => value === null || typeof value !== "object");
  const tables = Object.entries(data?.tables ?? {});
  fill(card, h("h2", { tabindex: "-1" }, "Everything is erased"),
    h("dl", { class: "facts" }, told.map(([key, value]) => [h("dt", {}, key.replaceAll("_", " ")),
      h("dd", {}, /^\d{4}-\d\d-\d\dT/.test(value) ? when(value) : String(value))])),
    tables.length > 0 && h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Receipt" }, h("table", {},
      h("caption", {}, "Receipt"),
      h("tbody", {}, tables.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name),
        h("td", {}, typeof value === "object" ? Object.entries(value ?? {}).map(([k, v]) => `${k.replaceAll("_", " ")}: ${v}`).join(", ") : String(value))))))));
  card.querySelector("h2").focus();
}
