// The streams that this page has opened.

const streams = new Map();
let opened = 0;

/** The prefix of this page's stream names, which identifies them among refusals. */
const page = crypto.getRandomValues(new Uint32Array(2)).join("-");

/** Opens a stream of one row per second. It holds a permit of the account until it ends. */
async function open(account, seconds) {
  const stream = { number: ++opened, account, seconds, state: "waiting", rows: 0, abort: new AbortController() };
  streams.set(stream.number, stream);
  drawStreams();
  await run(stream).catch(() => finish(stream, "cut"));
}

async function run(stream) {
  const account = encodeURIComponent(stream.account);
  const path = `/market/export?rows=${stream.seconds}&interval_ms=1000&account=${account}&stream=${page}.${stream.number}`;
  const response = await reach(path, { signal: stream.abort.signal, cache: "no-store" });
  if (!response.ok) return refused(stream, response);
  stream.state = "open";
  drawStreams();
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    // A row ends with a newline.
    stream.rows += part.value.filter((byte) => byte === 10).length;
    drawStreams();
  }
  finish(stream, "ended");
  // An ended stream stays visible for 4 s.
  setTimeout(() => forget(stream), 4000);
}

async function refused(stream, response) {
  const problem = await response.json().catch(() => ({}));
  stream.status = response.status;
  stream.reason = problem.detail ?? problem.title ?? "";
  stream.wait = Number(response.headers.get("retry-after"));
  stream.until = stream.wait ? Date.now() + 1000 * stream.wait : null;
  finish(stream, "refused");
  announce(`Stream ${stream.number} was refused`);
}

/** Marks a stream as ended. A stream that the visitor has closed is already gone. */
function finish(stream, state) {
  stream.state = state;
  drawStreams();
}

function close(stream) {
  stream.abort.abort();
  forget(stream);
}

function forget(stream) {
  streams.delete(stream.number);
  drawStreams();
}

function again(stream) {
  forget(stream);
  open(stream.account, stream.seconds);
}

function drawStreams() {
  const all = [...streams.values()];
  reconcile(byId("streams"), all, (stream) => stream.number, makeStream, drawStream);
  byId("no-streams").hidden = all.length > 0;
}

function makeStream(stream) {
  return make("li", {},
    make("span", { className: "what" }, make("span", { className: "mark" }), make("small")),
    make("span", { className: "until", ariaHidden: "true" }),
    make("span", { className: "buttons" },
      button("Try again", "small plain", () => again(stream), `Try stream ${stream.number} again`),
      button("Close", "small stop", () => close(stream), `Close stream ${stream.number}`)));
}

function drawStream(row, stream) {
  row.stream = stream;
  row.dataset.state = stream.state;
  const [what, until, { children: [retry, end] }] = row.children;
  const [mark, small] = what.children;
  setText(mark, `Stream ${stream.number}: ${stateOf(stream)}`);
  setText(small, detailOf(stream));
  until.hidden = stream.state !== "refused" || !stream.until;
  const runs = ["waiting", "open"].includes(stream.state);
  retry.hidden = runs || stream.state === "ended";
  setText(end, runs ? "Close" : "Dismiss");
  end.ariaLabel = `${end.textContent} stream ${stream.number}`;
  tickUntil(row, stream);
}

const stateOf = ({ state, status }) => ({
  waiting: "waiting",
  open: "open",
  ended: "ended",
  refused: `refused, ${status}`,
  cut: "cut off",
})[state];

function detailOf({ state, account, rows, reason, wait }) {
  if (state === "waiting") return "for a permit";
  if (state === "refused") return wait ? `Retry-After: ${wait} s` : reason;
  if (state === "cut") return "its permit was ended, or the market is gone";
  const received = rows === 1 ? "1 row" : `${rows} rows`;
  return account === watched ? received : `${received}, of ${account}`;
}

/** Counts down to the moment at which a refused request may come back. */
function tickUntil(row, { until }) {
  if (!until) return;
  const left = Math.ceil((until - Date.now()) / 1000);
  const text = row.querySelector(".until");
  text.classList.toggle("over", left <= 0);
  setText(text, left > 0 ? `in ${lasting(1000 * left)}` : "now");
}

ticking.add(() => [...byId("streams").children].forEach((row) => tickUntil(row, row.stream)));

// Refusals that the market reports. Those of this page's own streams are shown with the streams.

const clock = new Intl.DateTimeFormat([], { timeStyle: "medium" });

/** The number of refusals that are drawn. */
const MOST_REFUSALS = 6;
/** The pause after each drawing, because visitors cannot read or hear refusals faster. */
const REFUSALS_MS = 1000;

/**
 * The refusals that are not drawn yet: the newest ones, and their number. `total` counts those that were drawn, and
 * `drawn` is the time of the last drawing.
 */
const noRefusals = () => ({ newest: [], count: 0, total: 0, drawn: 0, timer: null });
let refusals = noRefusals();

function showRefusal(refusal) {
  if (refusal.stream?.startsWith(`${page}.`)) return;
  refusals.count += 1;
  refusals.newest.push({ ...refusal, at: Date.now() });
  if (refusals.newest.length > MOST_REFUSALS) refusals.newest.shift();
  refusals.timer ??= setTimeout(drawRefusals, refusals.drawn + REFUSALS_MS - Date.now());
}

/** Draws the new refusals. Several at once are announced as a number. */
function drawRefusals() {
  const { newest, count, total } = refusals;
  refusals = { ...noRefusals(), total: total + count, drawn: Date.now() };
  setText(byId("refusals-note"), `${total + count} so far`);
  byId("refusals").ariaLive = count > 1 ? "off" : "polite";
  for (const refusal of newest) log(byId("refusals"), makeRefusal(refusal), MOST_REFUSALS);
  if (count > 1) announce(`${count} requests were refused`);
}

function forgetRefusals() {
  clearTimeout(refusals.timer);
  refusals = noRefusals();
  setText(byId("refusals-note"), "none so far");
  byId("refusals").replaceChildren();
}

function makeRefusal({ request, status, reason, retry_after: wait, at }) {
  const back = wait ? `Retry-After: ${wait} s` : "no Retry-After";
  const row = make("li", {},
    make("span", { className: "what" },
      make("span", { className: "mark", textContent: request }),
      make("small", { textContent: `${status}: ${reason}` }),
      make("small", { textContent: `${back} · ${clock.format(at)}` })),
    make("span", { className: "until", ariaHidden: "true" }));
  row.refusal = { until: wait ? at + 1000 * wait : null };
  tickUntil(row, row.refusal);
  return row;
}

ticking.add(() => [...byId("refusals").children].forEach((row) => tickUntil(row, row.refusal)));
