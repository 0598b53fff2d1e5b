// Listing, buying, and the trades of others.

/** At most this many listings are drawn. */
const MOST_LISTINGS = 20;

/** The cheapest listings, by id. */
let listings = new Map();
/** The number of dearer listings that the market has not sent, and the price at which they start. */
let unsentCount = 0;
let unsentPrice = Infinity;
let coins = 0;

function showListings({ listings: all, total }) {
  listings = new Map(all.map((listing) => [listing.id, listing]));
  unsentCount = total - all.length;
  unsentPrice = unsentCount ? all.at(-1).price : Infinity;
  drawListings();
}

function addListing(listing) {
  // A dearer listing would be shown before others that the market has not sent.
  if (listing.price < unsentPrice) listings.set(listing.id, listing);
  else if (!listings.has(listing.id)) unsentCount += 1;
  drawListings();
  if (listing.seller === watched) showAccount();
}

function showTrade(trade) {
  if (!listings.delete(trade.id)) unsentCount = Math.max(0, unsentCount - 1);
  if (listings.size < MOST_LISTINGS && unsentCount) feed.renew();
  else drawListings();
  byId("no-trades").hidden = true;
  log(byId("trades"), make("li", {},
    make("span", { className: "what" },
      make("span", { className: "name", textContent: trade.item }),
      // Without isolation, two names in a right-to-left script would swap places.
      make("small", {}, make("bdi", { textContent: trade.seller }), " → ", make("bdi", { textContent: trade.buyer }))),
    make("span", { className: "price", textContent: `${trade.price} coins` })), 8);
  if ([trade.seller, trade.buyer].includes(watched)) showAccount();
}

function drawListings() {
  const all = [...listings.values()].sort((a, b) => a.price - b.price || (a.id < b.id ? -1 : 1));
  reconcile(byId("listings"), all.slice(0, MOST_LISTINGS), (listing) => listing.id, makeListing, drawListing);
  byId("no-listings").hidden = all.length > 0;
  const more = Math.max(0, all.length - MOST_LISTINGS) + unsentCount;
  byId("more-listings").hidden = more === 0;
  setText(byId("more-listings"), `and ${more} dearer ones`);
}

function makeListing(listing) {
  return make("li", {},
    make("span", { className: "what" },
      make("span", { className: "name", textContent: listing.item }),
      make("small", { textContent: `sold by ${listing.seller}` })),
    make("span", { className: "price", textContent: `${listing.price} coins` }),
    button("Buy", "small plain", () => buy(listing), `Buy ${listing.item} for ${listing.price} coins`));
}

function drawListing(row, listing) {
  row.lastChild.disabled = false;
  row.lastChild.hidden = listing.seller === watched;
}

/** Shows the coins and items of the account. */
async function showAccount() {
  const account = watched;
  const answer = await fetch(pathOf(account)).catch(() => null);
  if (!answer?.ok || account !== watched) return;
  const { funds, items } = await answer.json();
  coins = funds;
  setText(byId("funds"), coins.toLocaleString());
  const chosen = byId("item").value;
  byId("item").replaceChildren(...items.map((item) => make("option", { value: item, textContent: item })));
  if (items.includes(chosen)) byId("item").value = chosen;
}

async function sell(event) {
  event.preventDefault();
  const offer = { item: byId("item").value, price: Number(byId("price").value) };
  await trade("/market/items", offer, `${offer.item} is for sale`);
}

async function buy(listing) {
  const path = `/market/items/${encodeURIComponent(listing.id)}/purchase`;
  await trade(path, null, `${listing.item} is bought`);
}

/** Sends one request. It needs a permit like any other, so it may be refused. */
async function trade(path, body, done) {
  const query = `?account=${encodeURIComponent(watched)}`;
  const json = body && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path + query, { method: "POST", ...json }).catch(() => null);
  const problem = answer?.ok ? null : await answer?.json().catch(() => null);
  byId("trade-outcome").classList.toggle("bad", !answer?.ok);
  setText(byId("trade-outcome"), answer?.ok ? done : whyNot(answer, problem));
}

function whyNot(answer, problem) {
  if (!answer) return "The market does not answer";
  const wait = answer.headers.get("retry-after");
  const reason = problem?.detail ?? problem?.title ?? "no reason given";
  return wait ? `Refused: ${answer.status}, Retry-After: ${wait} s` : `Refused: ${reason}`;
}
