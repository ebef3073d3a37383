// Wrap-ups: what the advisor took from each session, what that rests on, and its correction.

import { call, get, pages } from "./api.js";
import { confirmed, emptyState, field, fill, h, paged, problemNote, tell, when } from "./dom.js";

const LISTS = { decisions: "Decided", open_items: "Still open", new_context: "New about you" };

/** The list, or one wrap-up. */
export async function wrapUpsView(id) {
  return id ? new WrapUp(await call("GET", `/v1/session-logs/${encodeURIComponent(id)}`)).element : list();
}

async function list() {
  const row = (one) => h("li", {}, h("a", { class: "card", href: `#/wrap-ups/${one.id}` },
    h("span", { class: "title" }, when(one.created_at, { day: true }), one.edited_at && h("span", { class: "tag" }, "edited by you")),
    h("span", {}, one.summary),
    h("small", {}, counts(one))));
  const nothing = emptyState("No wrap-ups yet",
    "When a conversation ends, or is quiet for half an hour, the advisor writes down what was decided and what is open.",
    "To have one now, open a conversation and choose “End and wrap up”.");
  return h("div", { class: "page" }, h("h1", {}, "Wrap-ups"),
    h("p", { class: "lead" }, "The advisor reads the last three before it answers. Correct what is wrong; delete what it should forget."),
    await paged(pages("/v1/session-logs"), row, nothing));
}

function counts(one) {
  const parts = Object.entries(LISTS).map(([name, label]) => one[name].length && `${label}: ${one[name].length}`);
  return parts.filter(Boolean).join(" · ") || "No decisions, nothing open";
}

class WrapUp {
  constructor({ data, etag }) {
    this.element = h("div", { class: "page" });
    this.show(data, etag);
  }

  show(data, etag) {
    this.data = data;
    this.etag = etag;
    fill(this.element,
      h("p", {}, h("a", { href: "#/wrap-ups" }, "← All wrap-ups")),
      h("h1", {}, "Session of ", when(data.created_at, { day: true })),
      h("p", { class: "lead" }, h("a", { href: `#/chat/${data.conversation_id}` }, "Open the conversation"),
        data.edited_at ? [" · edited by you ", when(data.edited_at)] : ` · written by ${data.model}`),
      h("p", {}, data.summary),
      Object.entries(LISTS).map(([name, label]) => data[name].length > 0 && [
        h("h2", {}, label), h("ul", { class: "items" }, data[name].map((item) => this.item(item)))]),
      data.next_session_note && [h("h2", {}, "For the next session"), h("p", {}, data.next_session_note)],
      h("div", { class: "row" },
        h("button", { type: "button", onclick: () => this.edit() }, "Edit"),
        h("button", { type: "button", class: "danger", onclick: () => this.remove() }, "Delete wrap-up")));
  }

  item({ text, message_ids: ids }) {
    const links = ids.map((id, i) => h("a", {
      href: `#/chat/${this.data.conversation_id}?message=${id}`, "aria-label": `Message ${i + 1} that this rests on`,
    }, `message ${i + 1}`));
    return h("li", {}, text, links.length > 0 && h("small", { class: "rests" }, "rests on ", links.flatMap((link, i) => (i ? [", ", link] : [link]))));
  }

  edit() {
    const inputs = {
      summary: area(this.data.summary, "Summary", 4),
      note: area(this.data.next_session_note, "For the next session", 2, false),
    };
    const lists = Object.fromEntries(Object.keys(LISTS).map((name) => [name, new ItemsEditor(LISTS[name], this.data[name])]));
    const problem = problemNote();
    const save = async () => {
      const body = { summary: inputs.summary.value, next_session_note: inputs.note.value };
      for (const [name, editor] of Object.entries(lists)) body[name] = editor.items();
      try {
        const { data, etag } = await call("PATCH", `/v1/session-logs/${this.data.id}`, { body, ifMatch: this.etag });
        this.show(data, etag);
        tell("Wrap-up saved.");
        this.element.querySelector("h1").scrollIntoView();
      } catch (error) {
        problem.say(error.message, error.status === 412 && this.reload());
      }
    };
    fill(this.element,
      h("h1", {}, "Edit the wrap-up"),
      h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); save(); } },
        field("Summary", inputs.summary), Object.values(lists).map((editor) => editor.element),
        field("For the next session", inputs.note), problem.element,
        h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Save"),
          h("button", { type: "button", class: "quiet", onclick: () => this.show(this.data, this.etag) }, "Cancel"))));
    inputs.summary.focus();
  }

  reload() {
    return h("button", { type: "button", class: "quiet", onclick: async () => {
      const { data, etag } = await call("GET", `/v1/session-logs/${this.data.id}`);
      this.show(data, etag);
    } }, "Show it as it is now");
  }

  async remove() {
    const yes = await confirmed({ title: "Delete this wrap-up?", action: "Delete wrap-up",
      lines: [this.data.summary, "It is never made again. The conversation itself stays."] });
    if (!yes) return;
    await call("DELETE", `/v1/session-logs/${this.data.id}`);
    tell("Wrap-up deleted.");
    location.hash = "#/wrap-ups";
  }
}

function area(value, label, rows, required = true) {
  return h("textarea", { rows, required, name: label }, value);
}

/** A list of texts to change, add to and take from; what an entry rests on stays with it. */
class ItemsEditor {
  constructor(label, items) {
    this.label = label;
    this.rows = h("ul", { class: "list" });
    items.forEach((item) => this.add(item));
    this.element = h("fieldset", {}, h("legend", {}, label), this.rows,
      h("button", { type: "button", class: "quiet", onclick: () => this.add({ text: "", message_ids: [] }).focus() }, "Add one"));
  }

  add(item) {
    const input = h("textarea", { rows: 2, maxlength: 500, "aria-label": this.label }, item.text);
    const row = h("li", { class: "row top-aligned" }, h("div", { class: "grow" }, input),
      h("button", { type: "button", class: "quiet", "aria-label": `Remove: ${item.text || "new entry"}`,
        onclick: () => { row.remove(); this.element.querySelector(":scope > button").focus(); } }, "Remove"));
    row.read = () => ({ text: input.value.trim(), message_ids: item.message_ids });
    this.rows.append(row);
    return input;
  }

  items() {
    return [...this.rows.children].map((row) => row.read()).filter((item) => item.text);
  }
}
