// The holders of the account's permits, and the waiters.

/** At most this many slots are drawn. */
const MOST_SLOTS = 24;
/** At most this many waiters are drawn. */
const MOST_WAITERS = 20;

/** The permits in their slots. A permit stays in its slot until it ends. */
let slots = [];
/** The market's settings: limit, lease, wait, and the kind of its store. */
let market = { limit: 5, lease_ms: 10_000, wait_ms: 0, store: "memory" };

/** Shows a new state of the account's permits. */
function showPermits(usage) {
  if (usage.now !== undefined) ahead = instant(usage.now) - Date.now();
  const limit = usage.limit ?? market.limit;
  const held = usage.held ?? [];
  place(held, limit);
  drawSlots(limit);
  const waiting = usage.waiting ?? [];
  const length = usage.queue_length ?? waiting.length;
  drawQueue(waiting.slice(0, MOST_WAITERS), length);
  setText(byId("held-count"), units(held));
  setText(byId("limit"), limit);
  byId("limit-set").hidden = usage.limit_set !== true;
  byId("full").hidden = units(held) < limit;
  pause = usage.pause ?? null;
  tickPause();
  document.title = `${units(held)}/${limit} · ${watched} · Market`;
  announcePermits(units(held), limit, length);
}

/** The pause of the account, or null. */
let pause = null;

/** Shows how long the pause still lasts. */
function tickPause() {
  const left = pause === null ? 0 : instant(pause.until) - storeNow();
  byId("pause").hidden = left <= 0;
  const note = pause?.note ? `: ${pause.note}` : "";
  // Rounded up to a second.
  setText(byId("pause"), left > 0 ? `paused for ${lasting(left + 999)}${note}` : "");
}

ticking.add(tickPause);

const units = (held) => held.reduce((sum, permit) => sum + (permit.weight ?? 1), 0);

/** Keeps each permit in its slot, and puts every other permit into the first free slot. */
function place(held, limit) {
  const now = new Map(held.map((permit) => [permit.id, permit]));
  slots = slots.slice(0, MOST_SLOTS).map((permit) => {
    const still = permit && now.get(permit.id);
    now.delete(permit?.id);
    return still ?? null;
  });
  for (const permit of now.values()) {
    const free = slots.indexOf(null);
    slots[free < 0 ? slots.length : free] = permit;
  }
  while (slots.length < Math.min(limit, MOST_SLOTS)) slots.push(null);
  // After the limit was lowered, slots beyond it disappear once they are free.
  while (slots.length > Math.min(limit, MOST_SLOTS) && slots.at(-1) === null) slots.pop();
}

function drawSlots(limit) {
  const entries = slots.slice(0, MOST_SLOTS).map((permit, index) => ({ permit, index }));
  reconcile(byId("slots"), entries, (entry) => entry.index, makeSlot, drawSlot);
  const more = Math.max(limit, slots.length) - entries.length;
  byId("more-slots").hidden = more === 0;
  setText(byId("more-slots"), `and ${more} more slots`);
}

function makeSlot() {
  const slot = make("li", { className: "slot" },
    make("p", { className: "state" }),
    make("p", { className: "label" }),
    make("p", { className: "name" }),
    make("p", { className: "since" }),
    make("p", { className: "lease" }),
    make("div", { className: "meter", ariaHidden: "true" }, make("i")));
  const end = button("End", "small stop", () => revoke(slot.permit));
  end.append(make("span", { className: "wide", textContent: " permit" }));
  slot.append(end);
  return slot;
}

function drawSlot(slot, { permit, index }) {
  const [state, label, name, since, lease, meter, end] = slot.children;
  slot.permit = permit;
  slot.classList.toggle("held", permit !== null);
  setText(state, permit ? `Slot ${index + 1}: held` : `Slot ${index + 1}: free`);
  for (const part of [label, name, since, lease, meter]) part.hidden = permit === null;
  if (!permit && document.activeElement === end) focusHeading(end);
  end.hidden = permit === null;
  if (!permit) return;
  setText(label, permit.label || "a permit without a label");
  setText(name, processName(permit.process));
  colour(slot, permit.process);
  end.ariaLabel = `End permit in slot ${index + 1}`;
  tickSlot(slot);
}

/** Shows how long a slot has been held, and the rest of its lease. */
function tickSlot(slot) {
  const permit = slot.permit;
  if (!permit) return;
  const [, , , held, lease, meter] = slot.children;
  const [since, ends] = [instant(permit.since), instant(permit.ends)];
  setText(held, since === null ? "" : `held ${lasting(storeNow() - since)}`);
  const left = ends === null ? null : Math.max(0, ends - storeNow());
  lease.hidden = meter.hidden = left === null;
  if (left === null) return;
  setText(lease, `lease ${(left / 1000).toFixed(1)} s`);
  meter.firstChild.style.scale = `${Math.min(1, left / market.lease_ms)} 1`;
}

ticking.add(() => [...byId("slots").children].forEach(tickSlot));

/** A short name for a process, whatever form the market uses. */
function processName(process) {
  if (!process) return "unknown process";
  if (typeof process !== "object") return String(process);
  const { name, host, pid, id } = process;
  const who = [name, host].filter(Boolean).join(" on ");
  return [who, pid === undefined || pid === null ? "" : `pid ${pid}`].filter(Boolean).join(", ") || String(id);
}

const HUES = [170, 265, 60, 330, 215, 115];
const processes = [];

/** Sets an element's colour to that of its process. */
function colour(element, process) {
  const key = process?.id ?? processName(process);
  if (!processes.includes(key)) processes.push(key);
  element.style.setProperty("--hue", HUES[processes.indexOf(key) % HUES.length]);
}

/** Draws the head of the queue. */
function drawQueue(waiting, length) {
  reconcile(byId("queue"), waiting, (waiter) => waiter.id, makeWaiter, drawWaiter);
  const none = market.wait_ms ? "nobody waits" : "no request waits here";
  setText(byId("queue-note"), length ? `${length} waiting, first come, first served` : none);
  byId("more-waiting").hidden = length === waiting.length;
  setText(byId("more-waiting"), `and ${length - waiting.length} behind them`);
}

function makeWaiter() {
  return make("li", {},
    make("span", { className: "number" }),
    make("span", { className: "what" }, make("span"), make("small")));
}

function drawWaiter(row, waiter, index) {
  row.waiter = waiter;
  const [number, what] = row.children;
  setText(number, `${index + 1}.`);
  setText(what.children[0], waiter.label || "a claim without a label");
  colour(row, waiter.process);
  tickWaiter(row);
}

function tickWaiter(row) {
  const since = instant(row.waiter.since);
  const waits = since === null ? "" : `, waits ${lasting(storeNow() - since)}`;
  setText(row.children[1].children[1], processName(row.waiter.process) + waits);
}

ticking.add(() => [...byId("queue").children].forEach(tickWaiter));

/** Ends a permit, whoever holds it. */
async function revoke(permit) {
  const path = pathOf(watched, `/permits/${encodeURIComponent(permit.id)}`);
  const answer = await fetch(path, { method: "DELETE" }).catch(() => null);
  if (answer?.ok) announce("The permit was ended");
  else if (answer?.status === 404) announce("The permit had ended already");
  else announce("The permit could not be ended");
}

let announcing = null;

/** Announces the number of held permits once it has been stable for a moment. */
function announcePermits(held, limit, waiting) {
  clearTimeout(announcing);
  const full = held < limit ? "" : ", full";
  const queue = waiting ? `, ${waiting} waiting` : "";
  const paused = pause ? ", paused" : "";
  announcing = setTimeout(() => announce(`${held} of ${limit} permits held${full}${queue}${paused}`), 600);
}

const announce = (text) => setText(byId("announcement"), text);
