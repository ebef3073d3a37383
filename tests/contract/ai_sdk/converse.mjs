// A client as useChat makes it: the SDK's own chat and transport with nothing set but the address and the token.
// Reads {sdk, api, token, id, steps} from stdin; writes one record for each step: what was sent, each chunk, and the chat's state after it.
import { readFileSync } from "node:fs";

const { sdk, api, token, id, steps } = JSON.parse(readFileSync(0, "utf8"));
const { AbstractChat, DefaultChatTransport, readUIMessageStream } = await import(sdk);

class Chat extends AbstractChat {
  constructor(init) {
    const state = {
      status: "ready",
      error: undefined,
      messages: [],
      pushMessage: (message) => state.messages.push(message),
      popMessage: () => state.messages.pop(),
      replaceMessage: (index, message) => (state.messages[index] = message),
      snapshot: (value) => structuredClone(value),
    };
    super({ ...init, state });
  }
}

let wire;
async function recordingFetch(url, init) {
  wire = { sent: JSON.parse(init.body), raw: "" };
  const response = await fetch(url, init);
  wire.http = response.status;
  wire.headers = Object.fromEntries(response.headers);
  if (!response.ok) return response;
  const kept = wire;
  const [forChat, forRecord] = response.body.tee();
  kept.recorded = (async () => {
    for await (const part of forRecord.pipeThrough(new TextDecoderStream())) kept.raw += part;
  })().catch(() => {});
  return new Response(forChat, response);
}

const transport = new DefaultChatTransport({
  api,
  headers: { authorization: `Bearer ${token}` },
  fetch: recordingFetch,
});
let finished;
const chat = new Chat({ id, transport, onFinish: (event) => (finished = event) });

const textOf = (message) => message?.parts.filter((p) => p.type === "text").map((p) => p.text).join("") ?? "";

async function stopWhenSaid(text, said) {
  const sending = chat.sendMessage({ text });
  while (!textOf(chat.lastMessage?.role === "assistant" ? chat.lastMessage : undefined).includes(said)) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await chat.stop();
  await sending;
}

/** The last request once more, as a client that does not know whether it arrived; patient while the first is still being ended. */
async function resend() {
  const { id: chatId, messages, trigger, messageId } = wire.sent;
  let stream;
  while (!stream) {
    stream = await transport.sendMessages({ chatId, messages, trigger, messageId }).catch((error) => {
      if (wire.http !== 409) throw error;
    });
  }
  let last;
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message;
  return structuredClone(last);
}

const records = [];
for (const step of steps) {
  finished = undefined;
  let read = null;
  if (step.do === "send") await chat.sendMessage({ text: step.text });
  if (step.do === "regenerate") await chat.regenerate(step.given ? { messageId: chat.lastMessage.id } : undefined);
  if (step.do === "edit") await chat.sendMessage({ text: step.text, messageId: chat.messages[0].id });
  if (step.do === "answer-first-again") await chat.regenerate({ messageId: chat.messages[0].id });
  if (step.do === "stop") await stopWhenSaid(step.text, step.said);
  if (step.do === "resend") read = await resend();
  await wire.recorded;
  records.push({
    status: chat.status,
    error: chat.error?.message ?? null,
    messages: structuredClone(chat.messages),
    read,
    finished: finished ? { isAbort: finished.isAbort ?? false, isError: finished.isError ?? false } : null,
    http: wire.http,
    headers: wire.headers ?? {},
    sent: wire.sent,
    raw: wire.raw,
  });
}
process.stdout.write(JSON.stringify(records));
