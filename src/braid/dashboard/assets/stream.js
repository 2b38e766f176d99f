// Requests to the dashboard's own server, and streams of events from it.
// (EventSource cannot send a token, so streams are read from fetch.)

const TOKEN = "braid-token";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN) || "";
}

export function keepToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

function headers(more = {}) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

async function refusal(response) {
  let reason = response.statusText;
  try {
    reason = (await response.json()).error || reason;
  } catch {
    // The answer came from something else than the dashboard.
  }
  return new Refused(response.status, reason);
}

export async function get(path) {
  const response = await fetch(path, { headers: headers() });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// Calls hear(kind, content) for each event until the stream ends or `signal` says so.
export async function listen(path, hear, signal) {
  const response = await fetch(path, { headers: headers(), signal });
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const kind = lines.find((line) => line.startsWith("event: "));
      const data = lines.find((line) => line.startsWith("data: "));
      if (kind && data) hear(kind.slice(7), JSON.parse(data.slice(6)));
    }
  }
}
