// The waiters for the limit that all accounts share, in the order in which they will be served.

/** How often the page asks while it is visible. */
const FLEET_MS = 1000;

/** Draws the head of the fleet's queue. */
function showFleet(usage) {
  const waiting = usage.waiting ?? [];
  byId("fleet-section").hidden = waiting.length === 0;
  setText(byId("fleet-note"), `${waiting.length} waiting, accounts take turns`);
  reconcile(byId("fleet-queue"), waiting.slice(0, MOST_WAITERS), (waiter) => waiter.id, makeWaiter, drawTurn);
  const more = Math.max(0, waiting.length - MOST_WAITERS);
  byId("more-fleet").hidden = more === 0;
  setText(byId("more-fleet"), `and ${more} behind them`);
}

/** A waiter with its flow, which is its account. */
function drawTurn(row, waiter, index) {
  drawWaiter(row, waiter, index);
  setText(row.children[1].children[0], `${waiter.flow ?? "no account"}: ${waiter.label || "a claim without a label"}`);
}

async function askFleet() {
  if (document.hidden) return;
  const answer = await fetch("/fleet/permits").catch(() => null);
  if (answer?.ok) showFleet(await answer.json());
}

setInterval(askFleet, FLEET_MS);
ticking.add(() => [...byId("fleet-queue").children].forEach(tickWaiter));
