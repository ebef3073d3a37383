// The page: which view the address names (#/view/id?message=id), and what happens when the sign-in is over.

import { claims, forgetToken, takeToken } from "./api.js";
import { brainView } from "./brain.js";
import { chatView } from "./chat.js";
import { dataView } from "./data.js";
import { h } from "./dom.js";
import { snapshotsView } from "./snapshots.js";
import { usageView } from "./usage.js";
import { wrapUpsView } from "./wrap_ups.js";

const VIEWS = {
  chat: ["Chat", chatView],
  "wrap-ups": ["Wrap-ups", wrapUpsView],
  brain: ["Brain", brainView],
  snapshots: ["Snapshots", snapshotsView],
  usage: ["Usage", usageView],
  data: ["Your data", dataView],
};

const main = document.getElementById("main");
let shown = 0;

async function show() {
  takeToken();
  const [, name = "chat", id = "", query = ""] = /^#\/([a-z-]+)(?:\/([^?]*))?(?:\?(.*))?/.exec(location.hash) ?? [];
  const [title, view] = VIEWS[name] ?? VIEWS.chat;
  const turn = ++shown;
  drawFrame(name);
  document.title = `${title} – MemberIntel`;
  if (!claims().exp) return signedOut("Sign in to begin");
  main.setAttribute("aria-busy", "true");
  let content;
  try {
    content = await view(decodeURIComponent(id), new URLSearchParams(query).get("message"));
  } catch (error) {
    if (error.status === 401) return undefined;
    content = h("div", { class: "page" }, h("h1", {}, error.status === 404 ? "Not here" : "That did not work"),
      h("p", { role: "alert" }, error.message), h("p", {}, h("a", { href: `#/${name}` }, `Back to ${title}`)));
  }
  if (turn !== shown) return undefined;
  main.removeAttribute("aria-busy");
  main.replaceChildren(content);
  scrollTo(0, 0);
  if (turn > 1) main.focus({ preventScroll: true });
  content.dispatchEvent(new Event("shown"));
  return undefined;
}

function drawFrame(current) {
  document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([name, [title]]) =>
    h("li", {}, h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, title))));
  document.querySelector("#views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  document.getElementById("account").textContent = claims().email ?? "";
}

function signedOut(title) {
  main.removeAttribute("aria-busy");
  main.replaceChildren(h("div", { class: "page" }, h("div", { class: "empty" },
    h("h1", {}, title),
    h("p", {}, "This page needs a valid sign-in, and there is none or it has run out."),
    h("p", {}, "On your own machine: open the address that ", h("code", {}, "memberintel run"), " printed, or put a new token behind the address: ",
      h("code", {}, "#token=…"), " with the output of ", h("code", {}, "memberintel token --user EMAIL"), "."),
    h("p", {}, "Elsewhere: open the console again from where you signed in."))));
}

window.addEventListener("signed-out", () => {
  shown += 1;
  forgetToken();
  signedOut("Your sign-in has run out");
});
window.addEventListener("hashchange", show);
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name !== "Problem" && !event.reason?.status) return;
  document.getElementById("announcer").textContent = event.reason.message;
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
show();
