//! The page is one document that may run its own script and no other.
//!
//! Promises: none.

use crate::process::Market;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use sha2::{Digest, Sha256};

#[tokio::test]
async fn the_page_is_one_document_that_may_run_its_own_script_and_style_only() {
    let market = Market::start(&[]).await;
    let page = market.nobody().get("/").await;
    assert_eq!(page.status(), 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let policy = page.header("content-security-policy").to_owned();
    let html = page.text().await;
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (element, directive) in [("script", "script-src"), ("style", "style-src")] {
        let inline = inside(&html, element);
        let digest = BASE64_STANDARD.encode(Sha256::digest(inline));
        let allowed = format!("{directive} 'sha256-{digest}';");
        assert!(policy.contains(&allowed), "{allowed} in {policy}");
    }
    for outside in ["src=\"", "@import", "url(", "javascript:", "onclick=\""] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.len() < 64 * 1024, "{} bytes", html.len());
}

/// The content of the only element with this name.
fn inside<'a>(html: &'a str, element: &str) -> &'a str {
    let (_, rest) = html
        .split_once(&format!("<{element}"))
        .expect("it is there");
    let (_, rest) = rest.split_once('>').expect("its tag ends");
    let (inside, rest) = rest.split_once(&format!("</{element}>")).expect("it ends");
    assert!(!rest.contains(&format!("<{element}")), "another {element}");
    inside
}

#[tokio::test]
async fn a_browser_that_has_the_page_is_not_sent_it_again() {
    let market = Market::start(&[]).await;
    let nobody = market.nobody();
    let tag = nobody.get("/").await.header("etag").to_owned();
    let request = nobody
        .request(Method::GET, "/")
        .header("if-none-match", &tag);
    let same = nobody.send(request, "").await;
    assert_eq!(same.status(), 304);
    assert_eq!(same.text().await, "");
    let request = nobody
        .request(Method::GET, "/")
        .header("if-none-match", "\"other\"");
    assert_eq!(nobody.send(request, "").await.status(), 200);
}

#[tokio::test]
async fn a_page_under_another_name_of_this_machine_may_read_an_answer_and_no_other_page() {
    let market = Market::start(&[]).await;
    let ann = market.client("ann");
    let port = market.url().rsplit(':').next().expect("a port");
    let allowed = async |origin: &str| {
        let request = ann.request(Method::GET, "/market").header("origin", origin);
        let answer = ann.send(request, "").await;
        answer.header("access-control-allow-origin") == origin
    };
    for host in ["localhost", "127.0.0.1", "s1x.localhost"] {
        assert!(allowed(&format!("http://{host}:{port}")).await, "{host}");
    }
    for origin in [
        format!("http://example.com:{port}"),
        format!("http://localhost.example.com:{port}"),
        format!("http://evillocalhost:{port}"),
        "http://localhost:1".to_owned(),
        "http://localhost".to_owned(),
        "null".to_owned(),
    ] {
        assert!(!allowed(&origin).await, "{origin}");
    }
}
