// Signing in by OIDC's authorization code flow with PKCE. What a sign-in is asked with stays in this tab; only the issuer sees the verifier.

import { claimsOf, keepToken } from "./api.js";

const KEY = "memberintel.sign-in";

let known = null;

/** Where to sign in; null where the server names no sign-in page. */
export async function signInPlace() {
  known ??= fetch("/console/sign-in.json").then((response) => response.json(), () => ({ sign_in: null }));
  return (await known).sign_in;
}

/** Go to the issuer's page; the way back leads to the view that is open now. */
export async function signIn() {
  const { authorization_url: address, client_id: client } = await signInPlace();
  const asked = { state: secret(), nonce: secret(), verifier: secret(), back: location.hash };
  sessionStorage.setItem(KEY, JSON.stringify(asked));
  const there = new URL(address, location.href);
  for (const [name, value] of Object.entries({
    response_type: "code", client_id: client, redirect_uri: redirectUri(), scope: "openid email", state: asked.state, nonce: asked.nonce,
    code_challenge: await challenge(asked.verifier), code_challenge_method: "S256",
  })) there.searchParams.set(name, value);
  location.assign(there);
}

/** On the way back from the issuer's page: keep the token and clean the address. Raises an error that says what went wrong. */
export async function finishSignIn() {
  const given = new URLSearchParams(location.search);
  if (!given.has("state") || !(given.has("code") || given.has("error"))) return;
  const asked = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
  sessionStorage.removeItem(KEY);
  // The code is good once; neither a reload nor the history shall bring it again.
  history.replaceState(null, "", location.pathname + (asked?.back || "#/chat"));
  if (!asked || given.get("state") !== asked.state) throw new Error("That sign-in was not begun in this tab, so it was not accepted.");
  if (given.has("error")) throw new Error(REFUSED[given.get("error")] ?? "The sign-in page refused. Try again; if it stays, tell whoever runs it.");
  const token = await exchange(given.get("code"), asked.verifier);
  if (claimsOf(token).nonce !== asked.nonce) throw new Error("The token that came was made for another sign-in, so it was not accepted.");
  keepToken(token);
}

const REFUSED = {
  access_denied: "The sign-in was cancelled or refused.",
  login_required: "The sign-in page wants you to sign in there first.",
  temporarily_unavailable: "The sign-in page cannot answer right now. Try again in a moment.",
};

async function exchange(code, verifier) {
  const { token_url: address, client_id: client } = await signInPlace();
  const body = new URLSearchParams({
    grant_type: "authorization_code", code, redirect_uri: redirectUri(), client_id: client, code_verifier: verifier,
  });
  const answer = await fetch(new URL(address, location.href), { method: "POST", body })
    .then((response) => (response.ok ? response.json() : null), () => null);
  if (!answer?.id_token) throw new Error("The sign-in could not be finished: no token came for it.");
  return answer.id_token;
}

const redirectUri = () => `${location.origin}/`;

const secret = () => encoded(crypto.getRandomValues(new Uint8Array(32)));

const challenge = async (verifier) => encoded(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));

const encoded = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
