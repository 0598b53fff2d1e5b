//! Endless bodies: which of them count, and how long they still count after a process is killed.

use http::StatusCode;
use std::{net::SocketAddr, process, time::Duration};
use testing::bench::connection::Connection;
use tokio::time::{Instant, sleep};

/// Holds five bodies, and prints the status of the sixth request.
pub(crate) async fn hold(app: SocketAddr, account: &str) {
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let response = Connection::open(app).await.get("/open", account).await;
        assert_eq!(response.status(), StatusCode::OK, "there are five permits");
        bodies.push(response);
    }
    let sixth = Connection::open(app).await.get("/open", account).await;
    println!("held {} {}", process::id(), sixth.status().as_u16());
    sleep(Duration::MAX).await;
}

/// Prints the seconds until a request is admitted, if that happens within 20 s.
pub(crate) async fn wait(app: SocketAddr, account: &str) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if admits(app, account).await {
            return println!("{:.2}", start.elapsed().as_secs_f64());
        }
        sleep(Duration::from_millis(10)).await;
    }
    println!("-");
}

/// Prints how many of ten requests, spread over the apps, are admitted while their bodies last.
pub(crate) async fn fleet(apps: &[SocketAddr]) {
    let (mut bodies, mut admitted) = (Vec::new(), 0);
    for app in apps.iter().cycle().take(10) {
        let response = Connection::open(*app).await.get("/open", "fleet").await;
        admitted += usize::from(response.status() == StatusCode::OK);
        bodies.push(response);
    }
    println!("{admitted}");
}

async fn admits(app: SocketAddr, account: &str) -> bool {
    let response = Connection::open(app).await.get("/open", account).await;
    response.status() == StatusCode::OK
}
