// Building the page. Data becomes text nodes and attributes only; nothing here parses HTML.

/** An element. Keys that start with "on" are listeners, `dataset` is an object, true and false set or leave out an attribute. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

/** Put these in the place of what is in the element. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

/** A small drawing from an SVG path, which a screen reader skips. */
export function icon(path) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) {
    svg.setAttribute(name, value);
  }
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
  drawn.setAttribute("d", path);
  svg.append(drawn);
  return svg;
}

/** Say something to a screen reader without moving the focus. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** The same, and show it for a moment: what an action did. */
export function tell(text) {
  announce(text);
  document.querySelector(".toast")?.remove();
  const toast = h("p", { class: "toast", "aria-hidden": "true" }, text);
  document.body.append(toast);
  setTimeout(() => toast.remove(), 5000);
}

/** A labelled control. */
export function field(label, control) {
  return h("label", { class: "field" }, label, control);
}

/** A place for what went wrong, which a screen reader hears at once. */
export function problemNote() {
  const element = h("div", { class: "note bad", role: "alert", hidden: true });
  return {
    element,
    say(text, action = null) {
      element.hidden = false;
      fill(element, h("p", {}, text), action);
    },
  };
}

/** A link out of the page; plain text where the address is not the web's. */
export function outside(url, text) {
  const safe = /^https?:\/\//i.test(url ?? "");
  return safe ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text) : h("span", {}, text);
}

const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const MOMENT = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
});

/** A `<time>` for an ISO moment; the exact one in its title. */
export function when(iso, { day = false } = {}) {
  if (!iso) return h("span", {}, "–");
  const moment = new Date(iso);
  return h("time", { datetime: iso, title: moment.toString() }, (day ? DAY : MOMENT).format(moment));
}

/** Ask before something is lost. Resolves to whether the customer confirmed; Escape and Cancel are no. */
export function confirmed({ title, lines = [], action, typed = null }) {
  return new Promise((resolve) => {
    const confirm = h("button", { class: "danger", value: "yes", disabled: typed !== null }, action);
    const word = typed && h("label", { class: "field" }, `Type ${typed} to confirm`,
      h("input", { type: "text", autocomplete: "off",
        oninput: (event) => { confirm.disabled = event.target.value.trim() !== typed; } }));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "dialog-title" }, title),
        lines.map((line) => h("p", {}, line)),
        word,
        h("div", { class: "row end" }, h("button", { class: "quiet", value: "no" }, "Cancel"), confirm)));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A list that reads one page and offers the next. `read(cursor)` gives {items, next}; `row(item)` an <li>. */
export async function paged(read, row, empty) {
  const list = h("ul", { class: "list" });
  const more = h("button", { class: "quiet", type: "button" }, "Show more");
  let next = null;
  const load = async () => {
    more.disabled = true;
    const page = await read(next);
    list.append(...page.items.map(row));
    next = page.next;
    more.disabled = false;
    more.hidden = next === null;
  };
  more.addEventListener("click", load);
  await load();
  return list.children.length ? [list, more] : [empty];
}

/** What a view shows while there is nothing in it, and what to do about that. */
export function emptyState(title, ...text) {
  return h("div", { class: "empty" }, h("h2", {}, title), text.map((line) => h("p", {}, line)));
}
