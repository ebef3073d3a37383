// A message of the customer's, and its correction.

import { fill, h, icon } from "./dom.js";

const PEN = "M4 20h4L19 9l-4-4L4 16zM13.500 6.500l4 4";

/** A question in the thread. `id` names its message to the server; `resend(text)` is called with the text that shall stand in its place. */
export class QuestionView {
  constructor(id, text, resend) {
    this.id = id;
    this.text = text;
    this.resend = resend;
    this.element = h("article", { class: "question", "aria-label": "You" });
    this.show();
  }

  show() {
    this.element.classList.remove("editing");
    const label = `Edit: ${this.text.length > 60 ? `${this.text.slice(0, 60)}…` : this.text}`;
    fill(this.element, h("p", {}, this.text),
      h("button", { type: "button", class: "pen", "aria-label": label, title: "Edit and ask again", onclick: () => this.edit() }, icon(PEN)));
  }

  edit() {
    const input = h("textarea", { rows: 2, maxlength: 8000, "aria-label": "Your message, edited", onkeydown: (event) => {
      if (event.key === "Escape") back();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    } }, this.text);
    const back = () => { this.show(); this.element.querySelector("button").focus(); };
    const send = () => {
      const text = input.value.trim();
      if (!text) return input.focus();
      this.show();
      return this.resend(text);
    };
    this.element.classList.add("editing");
    fill(this.element, h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); send(); } }, input,
      h("small", {}, "What was said after this message is replaced by the new answer."),
      h("div", { class: "row end" }, h("button", { type: "button", class: "quiet small", onclick: back }, "Cancel"),
        h("button", { type: "submit", class: "primary small" }, "Ask again"))));
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
  }
}
