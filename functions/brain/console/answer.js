// One answer: its text, its sources, and how it was made. The same element shows a stored answer and one that is being streamed.

import { call } from "./api.js";
import { fill, h, icon, outside } from "./dom.js";
import { markdown } from "./markdown.js";

const NAMES = { advisor: "Advisor", kpi: "Trends skill", site_data: "Site data skill", revenue: "Revenue skill" };
const WHY = {
  entity: "names something that a skill owns", intent: "asks for", reference: "points at earlier talk",
  comparison: "compares with something not in the question", advice: "asks for advice", how_to: "asks how to do something",
  explanation: "asks what something means", opinion: "asks for an opinion", forecast: "asks about the future",
  writing: "asks for a text", memory: "is about what to remember", action: "asks to do something",
  negation: "says what not to do", injection: "reads like an instruction to the system", unread: "could not be read by rules",
  missing: "a lookup would need", mixed: "mixes", unsupported: "no skill answers", handover: "a skill handed over",
};
const THUMB_UP = "M7 11v9H4v-9zM7 11l4-8c1.5 0 2.5 1 2.5 2.5V9H19c1.2 0 2 1 1.8 2.2l-1.2 7A2 2 0 0 1 17.6 20H7";
const AROUND = "M20 11a8 8 0 1 0-2.300 6.300M20 5v6h-6";
const THUMB_DOWN = "M17 13V4h3v9zM17 13l-4 8c-1.5 0-2.5-1-2.5-2.5V15H5c-1.2 0-2-1-1.800-2.2l1.2-7A2 2 0 0 1 6.4 4H17";

/** An answer that can be fed. `element` is in the page, `set` changes what is known, `stop` ends the streaming look. */
export class AnswerView {
  constructor() {
    this.known = nothing();
    this.body = h("div", { class: "prose" });
    this.note = h("p", { class: "note", hidden: true });
    this.sources = h("div", {});
    this.made = h("details", { class: "made", hidden: true });
    this.again = h("button", { type: "button", class: "thumb", "aria-label": "Answer again", title: "Answer again", hidden: true,
      onclick: () => this.onAgain() }, icon(AROUND));
    this.thumbs = h("div", { class: "thumbs" });
    this.element = h("article", { class: "answer", "aria-label": "Answer" }, this.body, this.note, this.sources,
      h("footer", {}, this.made, h("div", { class: "judge" }, this.again, this.thumbs)));
  }

  /** Offer to answer again, by `action`; null takes the offer back. */
  offer(action) {
    this.onAgain = action;
    this.again.hidden = action === null;
  }

  /** A stored answer. */
  static of(message) {
    const view = new AnswerView();
    view.set(message);
    view.stop();
    return view;
  }

  /** Forget what came, to receive it anew. */
  reset() {
    this.known = nothing();
    this.note.hidden = true;
    fill(this.note);
    fill(this.thumbs);
  }

  set(changes) {
    Object.assign(this.known, changes);
    this.draw();
  }

  /** Put one chunk of the stream into the answer. */
  take(chunk) {
    const { known } = this;
    if (chunk.type === "start") this.set({ id: chunk.messageId });
    else if (chunk.type === "text-delta") this.set({ text: known.text + chunk.delta });
    else if (chunk.type === "data-route") this.set({ route: chunk.data });
    else if (chunk.type === "data-recall") this.set({ recalled: chunk.data });
    else if (chunk.type === "tool-input-available") {
      const one = { id: chunk.toolCallId, tool_name: chunk.toolName, tool_input: chunk.input, is_error: false };
      this.set({ tool_calls: [...known.tool_calls, one] });
    } else if (chunk.type === "tool-output-error") {
      this.set({ tool_calls: known.tool_calls.map((one) => (one.id === chunk.toolCallId ? { ...one, is_error: true } : one)) });
    } else if (chunk.type === "source-document") {
      const { n, url } = chunk.providerMetadata.memberintel;
      this.set({ sources: [...known.sources, { n, url, title: chunk.title, entry_id: chunk.sourceId }] });
    } else if (chunk.type === "finish") this.set(chunk.messageMetadata);
  }

  streaming() {
    this.element.classList.add("streaming");
    this.element.setAttribute("aria-busy", "true");
  }

  stop() {
    this.element.classList.remove("streaming");
    this.element.removeAttribute("aria-busy");
    this.draw();
    this.drawThumbs();
  }

  /** A sentence about the answer itself: stopped, failed. */
  say(text, kind = "", action = null) {
    fill(this.note, text, action && [" ", action]);
    this.note.className = `note ${kind}`;
    this.note.hidden = false;
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { text, sources } = this.known;
    this.body.replaceChildren(...markdown(text, (label, whole) => this.citation(label, whole)));
    this.sources.replaceChildren(...(sources.length ? [sourceList(sources)] : []));
    this.drawMade();
    if (this.known.status === "interrupted" && this.note.hidden) this.say("This answer was stopped. What was said until then is kept.");
  }

  citation(label, whole) {
    const first = Number(/\d+/.exec(label)[0]);
    const source = this.known.sources.find((one) => one.n === first);
    return source ? h("sup", {}, outside(source.url, `[${label}]`)) : whole;
  }

  drawMade() {
    const { route, recalled, tool_calls: calls, model, provider } = this.known;
    const open = this.made.open;
    const facts = [];
    const terms = [];
    if (route) {
      facts.push(NAMES[route.name] ?? route.name);
      terms.push(["Answered by", `${NAMES[route.name] ?? route.name} (${route.confidence} confidence)`]);
      terms.push(["Why", route.reasons?.length ? reasons(route.reasons) : "No skill owns this question, so the Advisor took it."]);
    }
    const lines = recalled?.snapshots ?? [];
    const wrapUps = recalled?.wrap_ups ?? [];
    if (lines.length + wrapUps.length) facts.push(`${lines.length + wrapUps.length} recalled`);
    if (recalled) terms.push(["Recalled", recall(lines, wrapUps)]);
    if (calls.length) facts.push(calls.length === 1 ? "1 lookup" : `${calls.length} lookups`);
    if (calls.length) terms.push(["Looked up", h("ul", {}, calls.map(lookup))]);
    if (provider) {
      facts.push(provider === "offline" ? "offline model" : model);
      terms.push(["Model", provider === "offline"
        ? "Offline model: fixed rules that stand in while no model key is set. It shows how things work, not how well a real model answers."
        : `${model} (${provider})`]);
    }
    this.made.hidden = !facts.length;
    this.made.replaceChildren(
      h("summary", {}, h("span", { class: "unseen" }, "How this answer was made: "), facts.join(" · ")),
      h("dl", {}, terms.map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])));
    this.made.open = open;
  }

  drawThumbs() {
    const { id, helpful, status } = this.known;
    if (!id || !status || status === "failed") return; // only what is stored can be judged
    const thumb = (value, label, path) => h("button", {
      type: "button", class: "thumb", "aria-pressed": String(helpful === value), "aria-label": label, title: label,
      onclick: async () => {
        const wanted = this.known.helpful === value ? null : value;
        try {
          await call("PUT", `/v1/messages/${id}/feedback`, { body: { helpful: wanted } });
          this.known.helpful = wanted;
          this.drawThumbs();
          this.thumbs.querySelector(`[aria-label="${label}"]`).focus();
        } catch (error) {
          this.say(error.message, "bad");
        }
      },
    }, icon(path));
    fill(this.thumbs, thumb(true, "This helped", THUMB_UP), thumb(false, "This did not help", THUMB_DOWN));
  }
}

const nothing = () => ({ text: "", sources: [], tool_calls: [], recalled: null, route: null });

function sourceList(sources) {
  return h("section", { class: "sources", "aria-label": "Sources" }, h("ol", {},
    sources.map((source) => h("li", { value: source.n }, outside(source.url, source.title)))));
}

/** The router's reasons ("kind:cue"), one line a kind. */
function reasons(list) {
  const kinds = new Map();
  for (const reason of list) {
    const [kind, ...rest] = reason.split(":");
    kinds.set(kind, [...(kinds.get(kind) ?? []), rest.join(" ").replaceAll("_", " ")]);
  }
  return h("ul", {}, [...kinds].map(([kind, cues]) =>
    h("li", {}, `${WHY[kind] ?? kind}: ${[...new Set(cues)].filter(Boolean).join(", ")}`)));
}

function recall(lines, wrapUps) {
  if (!lines.length && !wrapUps.length) return "Nothing: no earlier lookup or wrap-up was put before the model.";
  return h("ul", {},
    lines.map((line) => h("li", {}, line.replace(/^- /, ""))),
    wrapUps.map((id, i) => h("li", {}, h("a", { href: `#/wrap-ups/${id}` }, `Wrap-up ${i + 1} of ${wrapUps.length}`))));
}

function lookup(one) {
  const given = Object.entries(one.tool_input ?? {}).map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : v}`);
  const text = `${one.tool_name}(${given.join(", ")})${one.is_error ? " – failed" : ""}`;
  return h("li", {}, one.snapshot_id ? h("a", { href: `#/snapshots/${one.snapshot_id}` }, text) : text);
}
