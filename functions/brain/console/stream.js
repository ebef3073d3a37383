// The UI message stream: server-sent events whose data is one JSON chunk each, then [DONE]. Comments keep the line open.

/** The chunks of a streamed answer, as they come. Raises when the stream ends before [DONE]. */
export async function* chunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("The connection broke off.");
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (!data.length) continue;
      if (data[0] === "[DONE]") return;
      yield JSON.parse(data.join("\n"));
    }
  }
}
