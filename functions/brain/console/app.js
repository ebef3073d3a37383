// The page: which view the address names (#/view/id?message=id), and what happens when the sign-in is over.

import { adminView, isAdmin } from "./admin.js";
import { claims, forgetToken, takeToken } from "./api.js";
import { brainView } from "./brain.js";
import { chatView } from "./chat.js";
import { dataView } from "./data.js";
import { h } from "./dom.js";
import { finishSignIn, signIn, signInPlace } from "./sign_in.js";
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
  admin: ["Report", adminView],
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
  if (!claims().exp && name !== "admin") return signedOut("Sign in to begin", "Your advisor remembers what you talked about; so it has to know who you are.");
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
  drawFrame(name);
  main.replaceChildren(content);
  scrollTo(0, 0);
  if (turn > 1) main.focus({ preventScroll: true });
  content.dispatchEvent(new Event("shown"));
  return undefined;
}

let framed = "";

/** The links to the views and who is signed in. The links stay where they are while they are the same, and with them a click or the focus. */
function drawFrame(current) {
  const { email, exp } = claims();
  const names = Object.keys(VIEWS).filter((name) => (name === "admin" ? isAdmin() : exp));
  if (framed !== `${names} ${email}`) {
    framed = `${names} ${email}`;
    document.getElementById("views").replaceChildren(...names.map((name) => h("li", {}, h("a", { href: `#/${name}` }, VIEWS[name][0]))));
    document.getElementById("account").replaceChildren(...(exp
      ? [h("span", { class: "who", title: email }, email ?? ""), h("button", { type: "button", class: "link", onclick: signOut }, "Sign out")]
      : []));
  }
  for (const link of document.querySelectorAll("#views a")) {
    if (link.hash === `#/${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector("#views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function signOut() {
  shown += 1;
  sessionStorage.clear();
  drawFrame();
  signedOut("You are signed out", "What the advisor remembers is kept until you come back.");
}

/** What stands in the place of every view while nobody is signed in; the view itself stays in the address. */
async function signedOut(title, why) {
  main.removeAttribute("aria-busy");
  const place = await signInPlace();
  const button = h("button", { type: "button", class: "primary", onclick: () => { button.disabled = true; signIn(); } }, "Sign in");
  main.replaceChildren(h("div", { class: "page" }, h("div", { class: "gate" },
    h("span", { class: "mark", "aria-hidden": "true" }),
    h("h1", {}, title), h("p", {}, why),
    place ? h("p", {}, button) : [
      h("p", {}, "On your own machine: open the address that ", h("code", {}, "memberintel run"), " printed, or put a new token behind the address: ",
        h("code", {}, "#token=…"), " with the output of ", h("code", {}, "memberintel token --user EMAIL"), "."),
      h("p", {}, "Elsewhere: open the console again from where you signed in.")])));
}

window.addEventListener("signed-out", () => {
  shown += 1;
  forgetToken();
  drawFrame();
  signedOut("Your sign-in has run out", "Sign in again, and you are back where you were.");
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
finishSignIn().then(show, (error) => {
  drawFrame();
  signedOut("You are not signed in", error.message);
});
