// The brain: memories, and the documents SOUL, BIBLE and HEARTBEAT.

import { call, get, pages } from "./api.js";
import { confirmed, field, fill, h, paged, problemNote, tell, when } from "./dom.js";

const ABOUT = {
  soul: ["SOUL", "Who you are: your voice, your values, what matters to you."],
  bible: ["BIBLE", "How you run your business: rules, plans, what was agreed."],
  heartbeat: ["HEARTBEAT", "How the site is doing. Written each night from its numbers; nobody edits it."],
};

/** Memories for everyone; documents where the plan has them. */
export async function brainView() {
  const [memories, texts] = await Promise.all([memoriesSection(), documentsSection()]);
  return h("div", { class: "page" }, h("h1", {}, "Brain"),
    h("p", { class: "lead" }, "What the advisor knows of you in every conversation."), memories, texts);
}

async function memoriesSection() {
  const section = h("section", { class: "stack", "aria-labelledby": "memories" });
  const usage = (await get("/v1/usage")).memories;
  const problem = problemNote();
  const input = h("textarea", { id: "new-memory", rows: 2, maxlength: 2000, required: true });
  const redraw = async () => section.replaceWith(await memoriesSection());
  const add = async (event) => {
    event.preventDefault();
    try {
      await call("POST", "/v1/brain/memories", { body: { content: input.value } });
      tell("Remembered.");
      await redraw();
      document.getElementById("new-memory")?.focus();
    } catch (error) {
      problem.say(error.message);
    }
  };
  const row = (memory) => memoryRow(memory, redraw);
  const list = await paged(pages("/v1/brain/memories"), row, h("p", { class: "muted" },
    "Nothing yet. Tell the advisor “remember that …”, or write it here."));
  fill(section,
    h("h2", { id: "memories" }, `Memories (${usage.used} of ${usage.limit})`), list,
    h("form", { class: "stack", onsubmit: add }, field("Something to remember", input), problem.element,
      h("div", { class: "row" }, h("button", { type: "submit" }, "Remember this"))));
  return section;
}

function memoryRow(memory, redraw) {
  const row = h("li", { class: "card" });
  const problem = problemNote();
  const remove = async () => {
    const yes = await confirmed({ title: "Forget this?", lines: [memory.content], action: "Forget it" });
    if (!yes) return;
    try {
      await call("DELETE", `/v1/brain/memories/${memory.id}`);
      tell("Forgotten.");
      await redraw();
    } catch (error) {
      problem.say(error.message);
    }
  };
  const edit = () => {
    const input = h("textarea", { rows: 3, maxlength: 2000, required: true, "aria-label": "Memory" }, memory.content);
    fill(row, h("form", { class: "stack", onsubmit: async (event) => {
      event.preventDefault();
      try {
        const { data } = await call("PATCH", `/v1/brain/memories/${memory.id}`, { body: { content: input.value }, ifMatch: `"${memory.version}"` });
        Object.assign(memory, data);
        tell("Saved.");
        show();
      } catch (error) {
        problem.say(error.message);
      }
    } }, input, problem.element, buttons(show)));
    input.focus();
  };
  const show = () => fill(row, h("p", { class: "kept" }, memory.content), problem.element,
    h("div", { class: "row" }, h("small", { class: "grow" }, when(memory.updated_at, { day: true })),
      h("button", { type: "button", class: "quiet small", "aria-label": `Edit: ${memory.content}`, onclick: edit }, "Edit"),
      h("button", { type: "button", class: "quiet small", "aria-label": `Forget: ${memory.content}`, onclick: remove }, "Forget")));
  show();
  return row;
}

function buttons(cancel) {
  return h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Save"),
    h("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel"));
}

async function documentsSection() {
  const section = h("section", { class: "stack", "aria-labelledby": "documents" }, h("h2", { id: "documents" }, "Documents"));
  try {
    const [list, sites] = await Promise.all([get("/v1/brain/documents"), get("/v1/sites?limit=100")]);
    const names = Object.fromEntries(sites.items.map((site) => [site.id, site.name]));
    section.append(...list.items.map((text) => new Text(text, names[text.site_id]).element));
    if (!list.items.some((text) => text.kind === "heartbeat")) {
      section.append(h("p", { class: "muted" }, "HEARTBEAT appears after the first night: a short report on each site's numbers."));
    }
  } catch (error) {
    if (error.status !== 403) throw error;
    section.append(h("div", { class: "empty" }, h("h3", {}, "Part of Pro"), h("p", {}, error.message)));
  }
  return section;
}

class Text {
  constructor(text, site) {
    const [title, about] = ABOUT[text.kind];
    this.title = site ? `${title} – ${site}` : title;
    this.about = about;
    this.path = `/v1/brain/documents/${text.kind}`;
    this.element = h("article", { class: "card stack", "aria-label": this.title });
    this.show(text);
  }

  show(text) {
    this.text = text;
    const editable = text.kind !== "heartbeat";
    const verb = text.content ? "Edit" : "Write";
    fill(this.element,
      h("h3", {}, this.title),
      h("p", { class: "muted" }, this.about),
      text.content ? h("p", { class: "kept" }, text.content) : h("p", {}, h("em", {}, "Nothing written yet.")),
      h("div", { class: "row" },
        h("small", { class: "grow" }, text.written_at ? [`Version ${text.version}, by ${who(text.author)}, `, when(text.written_at)] : ""),
        editable && h("button", { type: "button", class: "quiet small", "aria-label": `${verb} ${this.title}`, onclick: () => this.edit() }, verb),
        editable && text.version > 1 && h("button", { type: "button", class: "quiet small",
          "aria-label": `Earlier versions of ${this.title}`, onclick: () => this.history() }, "Earlier versions")));
  }

  edit() {
    const input = h("textarea", { rows: 10, maxlength: 8000 }, this.text.content);
    const problem = problemNote();
    fill(this.element, h("form", { class: "stack", onsubmit: (event) => {
      event.preventDefault();
      this.change("PUT", this.path, { content: input.value }, problem);
    } }, field(this.title, input), h("p", { class: "muted" }, this.about), problem.element, buttons(() => this.show(this.text))));
    input.focus();
  }

  async change(method, path, body, problem) {
    try {
      const { data } = await call(method, path, { body, ifMatch: `"${this.text.version}"` });
      this.show(data);
      tell(`${this.title} saved as version ${data.version}.`);
    } catch (error) {
      problem.say(error.message, error.status === 412 && h("button", { type: "button", class: "quiet",
        onclick: async () => this.show(await get(this.path)) }, "Show it as it is now"));
    }
  }

  async history() {
    const problem = problemNote();
    const row = (old) => h("li", {}, h("details", {},
      h("summary", {}, `Version ${old.version}, by ${who(old.author)}, `, when(old.written_at)),
      h("p", { class: "kept" }, old.content || "Empty."),
      h("div", { class: "row" }, h("button", { type: "button", class: "small", "aria-label": `Restore version ${old.version} of ${this.title}`,
        onclick: () => this.change("POST", `${this.path}/restore`, { version: old.version }, problem) }, "Restore this version"))));
    const list = await paged(pages(`${this.path}/revisions`), row, h("p", {}, "No earlier versions."));
    const back = h("button", { type: "button", class: "quiet small", onclick: () => this.show(this.text) }, "Back");
    fill(this.element, h("h3", {}, `${this.title}: earlier versions`), problem.element, list, h("div", { class: "row" }, back));
    back.focus();
  }
}

const who = (author) => ({ customer: "you", advisor: "the advisor", nightly: "the nightly report" })[author] ?? author;
