// The chat: conversations on the side, the thread, and the composer.

import { AnswerView } from "./answer.js";
import { Problem, call, get, pages, send } from "./api.js";
import { announce, confirmed, fill, h, paged, tell, when } from "./dom.js";
import { QuestionView } from "./question.js";
import { chunks } from "./stream.js";

const SUGGESTIONS = [
  "How many active members do I have?",
  "How did revenue develop over the last six months?",
  "What should I do about members who cancel?",
];

/** The view of one conversation, at its end or at `message`, or of a new one. */
export async function chatView(id, message) {
  const conversation = id ? await get(`/v1/conversations/${encodeURIComponent(id)}`) : null;
  const sites = conversation ? [] : (await get("/v1/sites?limit=100")).items;
  const chat = new Chat(conversation, sites);
  const side = h("aside", { class: "side", "aria-label": "Conversations" });
  await chat.drawSide(side);
  const view = h("div", { class: "split" }, side, chat.element);
  view.addEventListener("shown", () => chat.shown(message), { once: true });
  return view;
}

class Chat {
  constructor(conversation, sites) {
    this.conversation = conversation;
    this.running = null;
    this.thread = h("div", { class: "thread" });
    this.problem = h("p", { class: "note bad", role: "alert", hidden: true });
    this.input = h("textarea", {
      id: "message", rows: "1", maxlength: "8000", placeholder: "Ask about your business",
      oninput: () => { this.grow(); this.keepDraft(); }, onkeydown: (event) => this.key(event),
    });
    this.submit = h("button", { type: "submit", class: "primary" }, "Send");
    this.remember = h("input", { type: "checkbox", role: "switch", id: "remember", checked: true });
    this.site = sites.length > 1 ? h("select", { id: "site" }, sites.map((s) => h("option", { value: s.id }, s.name))) : null;
    this.form = h("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
      h("label", { for: "message", class: "unseen" }, "Your message"), this.input, this.submit);
    this.head = h("div", { class: "head" });
    this.element = h("section", { class: "talk", "aria-label": "Conversation" }, this.head, this.thread, this.problem, this.form);
    this.draw();
  }

  draw() {
    this.drawHead();
    if (!this.conversation) return this.thread.replaceChildren(this.welcome());
    const { messages, earlier } = this.conversation;
    this.thread.replaceChildren(...this.views(messages));
    this.offerAgain();
    if (earlier !== null) this.thread.prepend(this.earlierButton(earlier));
    return undefined;
  }

  shown(message) {
    this.input.value = sessionStorage.getItem(this.draft) ?? "";
    this.grow();
    if (message) return this.point(message);
    if (!this.conversation) return undefined;
    // Answers draw themselves in the next frame; the end is known after it.
    return requestAnimationFrame(() => requestAnimationFrame(() => scrollTo({ top: document.body.scrollHeight })));
  }

  /** Bring a message into view, reading earlier ones until it is there. */
  async point(id) {
    for (let more = this.older; !document.getElementById(`message-${id}`) && more; more = this.older) await more();
    const element = document.getElementById(`message-${id}`);
    if (!element) return announce("That message is no longer there.");
    element.classList.add("pointed");
    element.tabIndex = -1;
    element.focus({ preventScroll: true });
    return element.scrollIntoView({ block: "center" });
  }

  earlierButton(before) {
    this.older = async () => {
      this.older = null;
      const page = await get(`/v1/conversations/${this.conversation.id}?before=${before}`);
      const nodes = this.views(page.messages);
      button.replaceWith(...(page.earlier === null ? [] : [this.earlierButton(page.earlier)]), ...nodes);
    };
    const button = h("button", { type: "button", class: "quiet", onclick: this.older }, "Show earlier messages");
    return button;
  }

  welcome() {
    return h("div", { class: "welcome" },
      h("h1", {}, "What would you like to know?"),
      h("p", {}, "The advisor looks up your site's data, and remembers what you talked about, with its date."),
      h("ul", { class: "suggestions" }, SUGGESTIONS.map((text) => h("li", {},
        h("button", { type: "button", class: "quiet", onclick: () => { this.input.value = text; this.ask(); } }, text)))),
      this.site && h("label", { class: "field" }, "Site", this.site),
      h("div", { class: "switch" }, this.remember,
        h("label", { for: "remember" }, "Remember this conversation",
          h("small", {}, "Off: it stays readable for you, but leaves no wrap-up and no memory."))));
  }

  drawHead() {
    const talk = this.conversation;
    if (!talk) return fill(this.head);
    const note = talk.remember ? null : h("span", { class: "tag" }, "not remembered");
    return fill(this.head,
      h("h1", {}, talk.title), note, h("div", { class: "actions" },
        talk.remember && h("button", { type: "button", class: "quiet", onclick: () => this.end() }, "End and wrap up"),
        h("button", { type: "button", class: "quiet", onclick: () => this.remove() }, "Delete")));
  }

  async drawSide(side) {
    this.side = side;
    const row = (talk) => h("li", {}, h("a", {
      href: `#/chat/${talk.id}`, "aria-current": talk.id === this.conversation?.id ? "page" : null,
    }, h("span", { class: "title" }, talk.title), h("small", {}, when(talk.last_turn_at, { day: true }))));
    const list = await paged(pages("/v1/conversations"), row, h("p", { class: "muted" }, "No conversations yet."));
    const open = matchMedia("(min-width: 52rem)").matches;
    side.replaceChildren(
      h("a", { class: "button primary", href: "#/chat", onclick: () => this.fresh() }, "New conversation"),
      h("details", { open }, h("summary", {}, "Conversations"), ...list));
  }

  fresh() {
    // The address may be that of a new conversation already; then nothing else tells the router.
    if (location.hash === "#/chat") window.dispatchEvent(new HashChangeEvent("hashchange"));
  }

  /** What is typed outlives a sign-in that ran out, until the server has it. */
  get draft() {
    return `memberintel.draft.${this.id ?? ""}`;
  }

  keepDraft() {
    sessionStorage.setItem(this.draft, this.input.value);
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, 240)}px`;
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.ask();
    }
    if (event.key === "Escape" && this.running) this.running.abort();
  }

  async ask() {
    if (this.running) return this.running.abort();
    const message = this.input.value.trim();
    if (!message) return this.input.focus();
    const before = [...this.thread.childNodes];
    if (!this.id) this.thread.replaceChildren();
    const body = this.request(message);
    const answer = this.open(this.question(body.turn_id, message));
    this.input.value = "";
    this.grow();
    return this.run(body, answer, (error) => {
      this.thread.replaceChildren(...before);
      this.input.value = message;
      this.grow();
      this.refuse(error);
    });
  }

  /** Ask an earlier question again, with another text if it was edited; what followed it is replaced. */
  async askAgain(question, text) {
    if (this.running) return undefined;
    const before = [...this.thread.childNodes];
    const body = { ...this.request(text), replaces: question.id };
    while (question.element.nextSibling) question.element.nextSibling.remove();
    const now = text === question.text ? question : this.question(body.turn_id, text);
    if (now !== question) question.element.remove();
    return this.run(body, this.open(now), (error) => {
      this.thread.replaceChildren(...before);
      this.refuse(error);
    });
  }

  question(id, text) {
    const question = new QuestionView(id, text, (edited) => this.askAgain(question, edited));
    return question;
  }

  /** Put a question and the place of its answer at the thread's end. */
  open(question) {
    this.problem.hidden = true;
    const answer = new AnswerView();
    this.thread.append(question.element, answer.element);
    this.last = { question, answer };
    return answer;
  }

  refuse(error) {
    this.problem.textContent = error.message;
    this.problem.hidden = false;
    this.offerAgain();
  }

  /** The views of stored messages. */
  views(messages) {
    let question = null;
    return messages.filter((message) => !message.superseded).map((message) => {
      let view;
      if (message.role === "user") view = question = this.question(message.id, message.text);
      else {
        view = AnswerView.of(message);
        if (question) this.last = { question, answer: view };
      }
      view.element.id = `message-${message.id}`;
      return view.element;
    });
  }

  /** Only the answer at the end of the thread can be had anew at a click; an earlier question can be edited. */
  offerAgain() {
    this.offered?.offer(null);
    const { question, answer } = this.last ?? {};
    this.offered = answer && answer.element === this.thread.lastElementChild ? answer : null;
    this.offered?.offer(() => this.askAgain(question, question.text));
  }

  /** The conversation's id, which is known from the first chunk on: the next message may come before its head is read again. */
  get id() {
    return this.conversation?.id ?? this.begun;
  }

  request(message) {
    const body = { message, turn_id: crypto.randomUUID() };
    if (this.id) return { ...body, conversation_id: this.id };
    return { ...body, remember: this.remember.checked, ...(this.site && { site_id: this.site.value }) };
  }

  /** One turn. `giveBack` undoes a request that the server refused before it began. */
  async run(body, answer, giveBack) {
    this.busy(new AbortController());
    answer.streaming();
    follow(answer.element);
    announce("The advisor is answering.");
    // The same turn id again: what is stored is shown, what failed is tried once more, and nothing is paid twice.
    const again = h("button", { type: "button", class: "quiet small", onclick: () => {
      answer.reset();
      this.run(body, answer, null);
    } }, "Try again");
    try {
      const failed = await this.receive(body, answer);
      if (failed) answer.say(failed, "bad", again);
      announce(failed ?? answer.known.text);
    } catch (error) {
      if (error.name === "AbortError") {
        answer.say("Stopped. What was said until then is kept.");
        announce("Stopped.");
      } else if (giveBack && error instanceof Problem && !answer.known.id) {
        giveBack(error);
      } else {
        answer.say(error.message, "bad", again);
        announce(error.message);
      }
    } finally {
      answer.stop();
      this.busy(null);
    }
    this.offerAgain();
    return this.settle();
  }

  /** Put the stream into the answer; returns how the turn failed, if it did. */
  async receive(body, answer) {
    const response = await send("POST", "/chat", { body, accept: "text/event-stream", signal: this.running.signal });
    let failed = null;
    for await (const chunk of chunks(response)) {
      if (chunk.type === "start") {
        if (!this.input.value) sessionStorage.removeItem(this.draft);
        this.begin(chunk.messageMetadata.conversation_id);
      }
      if (chunk.type === "error") failed = chunk.errorText;
      answer.take(chunk);
      follow(answer.element);
    }
    return failed;
  }

  /** The address names the conversation from its first chunk on, unless the customer has gone to another view meanwhile. */
  begin(id) {
    this.begun = id;
    if (this.element.isConnected) history.replaceState(null, "", `#/chat/${id}`);
  }

  /** After a turn: the head and the list show the conversation as it is stored now. */
  async settle() {
    const { id } = this;
    if (!id) return;
    try {
      this.conversation = { ...(await get(`/v1/conversations/${id}?limit=1`)), earlier: null };
    } catch {
      return; // it went meanwhile; the next action says so
    }
    this.drawHead();
    await this.drawSide(this.side);
  }

  busy(controller) {
    this.running = controller;
    this.submit.textContent = controller ? "Stop" : "Send";
    this.submit.className = controller ? "" : "primary";
    if (!controller) this.input.focus({ preventScroll: true });
  }

  async end() {
    const { data } = await call("POST", `/v1/conversations/${this.conversation.id}/end`);
    this.say(data.ending
      ? "This session is ending. Its wrap-up appears under Wrap-ups in a moment."
      : "There is no open session here. The next message begins a new one.");
  }

  say(text) {
    this.thread.append(h("p", { class: "note" }, text));
    announce(text);
    scrollTo({ top: document.body.scrollHeight });
  }

  async remove() {
    const yes = await confirmed({
      title: "Delete this conversation?",
      lines: [`“${this.conversation.title}”`,
        "Its messages, sessions, snapshots and wrap-ups go with it, for good. Memories that were learned in it stay; they are under Brain."],
      action: "Delete conversation",
    });
    if (!yes) return;
    const { data } = await call("DELETE", `/v1/conversations/${this.conversation.id}`);
    const gone = data.deleted;
    location.hash = "#/chat";
    tell(`Deleted: ${gone.messages} messages, ${gone.snapshots} snapshots, ${gone.wrap_ups} wrap-ups.`);
  }
}

/** Keep the end in sight, unless the customer scrolled up to read. */
function follow(element) {
  const left = document.body.scrollHeight - (scrollY + innerHeight);
  if (left < 160) requestAnimationFrame(() => element.scrollIntoView({ block: "end" }));
}
