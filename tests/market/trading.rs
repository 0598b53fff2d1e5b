//! Items and coins move together or not at all.

use crate::{client::Answer, process::Market};
use futures_util::future::join_all;
use serde_json::{Value, json};

on_every_store! {
    an_account_is_born_with_a_thousand_coins_and_ten_items,
    a_purchase_moves_the_item_and_the_coins,
    of_many_buyers_at_once_one_gets_the_item,
    what_cannot_be_bought_stays_where_it_is,
    an_item_is_listed_once_and_by_its_owner_only,
    a_price_is_a_whole_number_of_coins_and_of_a_sane_size,
}

async fn id(listing: Answer) -> String {
    assert_eq!(listing.status(), 201);
    let listing = listing.json().await;
    listing["id"].as_str().unwrap_or_default().to_owned()
}

fn owns(account: &Value, item: &str) -> bool {
    let items = account["items"].as_array();
    items.is_some_and(|items| items.contains(&json!(item)))
}

async fn an_account_is_born_with_a_thousand_coins_and_ten_items(market: &Market) {
    let items: Vec<_> = (1..=10).map(|n| format!("ann-{n}")).collect();
    let born = json!({"funds": 1_000, "items": items});
    assert_eq!(market.nobody().account("ann").await, born);
}

async fn a_purchase_moves_the_item_and_the_coins(market: &Market) {
    let (ann, bob) = (market.client("ann"), market.client("bob"));
    let id = id(ann.list("ann-1", 300).await).await;
    let listing = json!({"id": id, "item": "ann-1", "price": 300, "seller": "ann"});
    assert_eq!(ann.get("/market").await.json().await, json!([listing]));
    assert!(!owns(&ann.account("ann").await, "ann-1"));

    let bought = bob.purchase(&id).await;
    assert_eq!(bought.status(), 200);
    assert_eq!(bought.json().await["item"], "ann-1");

    let (seller, buyer) = (bob.account("ann").await, bob.account("bob").await);
    assert_eq!(
        (&seller["funds"], &buyer["funds"]),
        (&json!(1_300), &json!(700))
    );
    assert!(owns(&buyer, "ann-1") && !owns(&seller, "ann-1"));
    assert_eq!(ann.get("/market").await.json().await, json!([]));
}

async fn of_many_buyers_at_once_one_gets_the_item(market: &Market) {
    let id = id(market.client("ann").list("ann-1", 300).await).await;
    let buyers: Vec<_> = (0..20).map(|n| market.client(&format!("b{n}"))).collect();

    let answers = join_all(buyers.iter().map(|buyer| buyer.purchase(&id))).await;
    let with = |status| answers.iter().filter(|a| a.status() == status).count();
    assert_eq!((with(200), with(409)), (1, 19));
    assert_eq!(buyers[0].account("ann").await["funds"], 1_300);
}

async fn what_cannot_be_bought_stays_where_it_is(market: &Market) {
    let (ann, bob) = (market.client("ann"), market.client("bob"));
    let dear = id(ann.list("ann-1", 1_001).await).await;
    assert_eq!(bob.purchase(&dear).await.status(), 409, "too poor");
    assert_eq!(ann.purchase(&dear).await.status(), 409, "her own");
    assert_eq!(bob.purchase("nothing").await.status(), 404, "unknown");

    let cheap = id(ann.list("ann-2", 1_000).await).await;
    assert_eq!(bob.purchase(&cheap).await.status(), 200);
    assert_eq!(ann.purchase(&cheap).await.status(), 409, "sold");

    let (seller, buyer) = (bob.account("ann").await, bob.account("bob").await);
    assert_eq!(
        (&seller["funds"], &buyer["funds"]),
        (&json!(2_000), &json!(0))
    );
    let for_sale = ann.get("/market").await.json().await;
    assert_eq!(
        (&for_sale[0]["id"], &for_sale[1]),
        (&json!(dear), &Value::Null)
    );
}

async fn an_item_is_listed_once_and_by_its_owner_only(market: &Market) {
    let ann = market.client("ann");
    assert_eq!(ann.list("bob-1", 10).await.status(), 409);
    assert_eq!(ann.list("ann-1", 10).await.status(), 201);
    assert_eq!(ann.list("ann-1", 10).await.status(), 409);
}

async fn a_price_is_a_whole_number_of_coins_and_of_a_sane_size(market: &Market) {
    let ann = market.client("ann");
    let wrong = [
        "0",
        "-1",
        "1.5",
        "5.0",
        "\"5\"",
        "null",
        "[1]",
        "1e999",
        "1000000001",
    ];
    for price in wrong.into_iter().chain(["18446744073709551616"]) {
        let answer = ann
            .offer(&format!(r#"{{"item":"ann-1","price":{price}}}"#))
            .await;
        assert_eq!(answer.status(), 422, "{price}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    assert_eq!(ann.offer(r#"{"item":"ann-1"}"#).await.status(), 422);
    assert_eq!(ann.offer(r#"{"item":"ann-1","price":"#).await.status(), 400);
    assert!(owns(&ann.account("ann").await, "ann-1"));
}
