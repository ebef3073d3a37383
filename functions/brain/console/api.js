// Talking to the backend: the token, requests, and errors as problem documents.

const KEY = "memberintel.token";

/** Take a token from the address (#token=…), where it never reaches a server, keep it for this tab, and clean the address. */
export function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (found) {
    keepToken(decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + "#/chat");
  }
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

/** What the token of this tab says about its bearer; {} without one. */
export const claims = () => claimsOf(sessionStorage.getItem(KEY));

/** What a token says; {} for what is none. Only for showing: the server is the one that checks. */
export function claimsOf(token) {
  try {
    const part = token.split(".")[1];
    const bytes = Uint8Array.from(atob(part.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return {};
  }
}

/** A refused request: `status`, `type` and the sentence for the customer. */
export class Problem extends Error {
  constructor(document, status) {
    super(document.detail ?? "That did not work. Try again.");
    this.status = status;
    this.type = (document.type ?? "").split(":").pop();
  }
}

/** The response to a request with the token; raises Problem. */
export async function send(method, path, { body, ifMatch, accept = "application/json", signal } = {}) {
  const headers = { Accept: accept, Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (ifMatch) headers["If-Match"] = ifMatch;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ detail: "The advisor cannot be reached. Check the connection and try again." }, 0);
  }
  if (response.ok) return response;
  const problem = new Problem(await response.json().catch(() => ({})), response.status);
  if (response.status === 401) window.dispatchEvent(new CustomEvent("signed-out"));
  throw problem;
}

/** A document that admins may read, whom a cookie lets in, not the token. Raises Problem with 401 for everybody else. */
export async function adminGet(path) {
  // Who is not let in is sent to another site's sign-in page; that is an answer too.
  const response = await fetch(path, { headers: { Accept: "application/json" }, redirect: "manual" });
  if (response.ok) return response.json();
  throw new Problem(await response.json().catch(() => ({})), response.status || 401);
}

/** The document of a request, and its ETag. */
export async function call(method, path, options) {
  const response = await send(method, path, options);
  const data = response.status === 204 ? null : await response.json();
  return { data, etag: response.headers.get("ETag") };
}

export const get = async (path) => (await call("GET", path)).data;

/** A reader of pages for `paged`. */
export function pages(path, parameters = {}) {
  return (cursor) => {
    const query = new URLSearchParams({ limit: 20, ...parameters, ...(cursor ? { cursor } : {}) });
    return get(`${path}?${query}`);
  };
}
