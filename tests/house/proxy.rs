//! The fault proxy of `tests/support` injects the faults that it promises. Otherwise tests of faults prove nothing.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(10);

/// A server, and a proxy in front of it.
struct Fixture {
    _server: RedisServer,
    proxy: Proxy,
    /// A client that is connected through the proxy.
    through: Raw,
    /// A client that is connected to the server itself.
    direct: Raw,
}

async fn fixture() -> Fixture {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let through = Raw::connect(proxy.port()).await;
    let direct = Raw::connect(server.port()).await;
    Fixture {
        _server: server,
        proxy,
        through,
        direct,
    }
}

impl Fixture {
    async fn is_set(&mut self, key: &str) -> bool {
        self.direct.cmd(&["EXISTS", key]).await.int() == 1
    }

    /// Asserts that a command through the proxy gets no reply.
    async fn assert_silent(&mut self, command: &[&str]) {
        let reply = timeout(SHORT, self.through.try_cmd(command)).await;
        assert!(reply.is_err(), "a reply: {reply:?}");
    }
}

/// The error with which a connection has ended.
fn end_of_connection(reply: std::io::Result<Reply>) -> ErrorKind {
    reply.expect_err("the connection has ended").kind()
}

#[tokio::test]
async fn a_proxy_forwards_commands_and_logs_them() {
    let mut fixture = fixture().await;
    let binary: [&[u8]; 3] = [b"SET", b"k", b"\xff\r\n\0"];
    fixture.through.cmd(&binary).await;
    assert_eq!(fixture.through.cmd(&["GET", "k"]).await.bytes(), binary[2]);
    let log = fixture.proxy.log();
    assert_eq!(log[0].args, binary);
    assert_eq!(log[1].args, [b"GET", &b"k"[..]]);
    assert!(log[0].at <= log[1].at);
    assert_eq!(fixture.proxy.count(b"get"), 1);
    fixture.proxy.clear_log();
    assert!(fixture.proxy.log().is_empty());
}

#[tokio::test]
async fn a_command_whose_reply_is_dropped_is_executed_and_other_replies_are_forwarded() {
    let mut fixture = fixture().await;
    fixture.proxy.drop_replies_to(1, |args| args[0] == b"SET");
    assert_eq!(fixture.through.cmd(&["PING"]).await.text(), "PONG");
    let end = fixture.through.try_cmd(&["SET", "k", "1"]).await;
    assert_eq!(end_of_connection(end), ErrorKind::UnexpectedEof);
    assert!(fixture.is_set("k").await);
    let mut again = Raw::connect(fixture.proxy.port()).await;
    assert_eq!(again.cmd(&["GET", "k"]).await.text(), "1");
}

#[tokio::test]
async fn dropping_messages_affects_neither_the_subscription_nor_replies() {
    for protocol in ["2", "3"] {
        let mut fixture = fixture().await;
        fixture.through.cmd(&["HELLO", protocol]).await;
        fixture.through.cmd(&["SUBSCRIBE", "c"]).await;
        fixture.proxy.drop_messages(true);
        assert_eq!(fixture.direct.cmd(&["PUBLISH", "c", "lost"]).await.int(), 1);
        assert!(timeout(SHORT, fixture.through.next()).await.is_err());
        // In version 2, a subscribed connection has no ordinary replies.
        if protocol == "3" {
            assert_eq!(fixture.through.cmd(&["PING"]).await.text(), "PONG");
        }
        fixture.proxy.drop_messages(false);
        fixture.direct.cmd(&["PUBLISH", "c", "heard"]).await;
        let message = fixture.through.next().await.expect("a message");
        assert_eq!(message.array()[2].text(), "heard");
    }
}

#[tokio::test]
async fn each_direction_has_a_delay_which_does_not_add_up_over_commands() {
    let mut fixture = fixture().await;
    for (to_server, to_client) in [(SHORT, Duration::ZERO), (Duration::ZERO, SHORT)] {
        fixture.proxy.delay(to_server, to_client);
        let start = Instant::now();
        for _ in 0..20 {
            fixture.through.send(&["PING"]).await.expect("sent");
        }
        for _ in 0..20 {
            fixture.through.next().await.expect("a reply");
        }
        assert!((SHORT..20 * SHORT).contains(&start.elapsed()));
    }
}

#[tokio::test]
async fn single_bytes_arrive_one_after_the_other() {
    let fixture = fixture().await;
    fixture.proxy.one_byte_replies(true);
    let address = ("127.0.0.1", fixture.proxy.port());
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("open");
    let ping = b"*1\r\n$4\r\nPING\r\n";
    stream.write_all(ping).await.expect("sent");
    let mut reply = Vec::new();
    let mut reads = 0;
    while !reply.ends_with(b"\r\n") {
        stream.read_buf(&mut reply).await.expect("a byte");
        reads += 1;
    }
    assert_eq!(reply, b"+PONG\r\n");
    assert!(reads > 1, "the reply arrived in one piece");
}

#[tokio::test]
async fn a_killed_connection_ends_in_the_chosen_way() {
    for (end, kind) in [
        (End::Close, ErrorKind::UnexpectedEof),
        (End::HalfClose, ErrorKind::UnexpectedEof),
        (End::Reset, ErrorKind::ConnectionReset),
    ] {
        let mut fixture = fixture().await;
        fixture.through.cmd(&["PING"]).await;
        fixture.proxy.kill(end);
        assert_eq!(
            end_of_connection(fixture.through.next().await),
            kind,
            "{end:?}"
        );
        let mut again = Raw::connect(fixture.proxy.port()).await;
        assert_eq!(again.cmd(&["PING"]).await.text(), "PONG");
    }
}

#[tokio::test]
async fn a_half_closed_connection_accepts_commands_and_ignores_them() {
    let mut fixture = fixture().await;
    fixture.through.cmd(&["PING"]).await;
    fixture.proxy.kill(End::HalfClose);
    assert!(fixture.through.next().await.is_err());
    fixture
        .through
        .send(&["SET", "k", "1"])
        .await
        .expect("taken");
    assert_eq!(fixture.proxy.connections(), 1);
    assert!(!fixture.is_set("k").await);
    drop(fixture.through);
    let proxy = fixture.proxy;
    eventually("it is closed", LONG, async || proxy.connections() == 0).await;
}

#[tokio::test]
async fn a_silenced_connection_accepts_commands_and_ignores_them_while_others_are_served() {
    let mut fixture = fixture().await;
    fixture.through.cmd(&["PING"]).await;
    fixture.proxy.kill(End::Silence);
    fixture.assert_silent(&["SET", "k", "1"]).await;
    assert!(!fixture.is_set("k").await);
    let mut again = Raw::connect(fixture.proxy.port()).await;
    assert_eq!(again.cmd(&["PING"]).await.text(), "PONG");
    assert_eq!(fixture.proxy.connections(), 2);
    drop(fixture.through);
    let proxy = fixture.proxy;
    eventually("it is closed", LONG, async || proxy.connections() == 1).await;
}

#[tokio::test]
async fn a_muted_connection_executes_commands_and_a_refusing_proxy_accepts_no_connection() {
    let mut fixture = fixture().await;
    fixture.through.cmd(&["PING"]).await;
    let address = ("127.0.0.1", fixture.proxy.port());
    fixture.proxy.refuse().await;
    assert_eq!(fixture.through.cmd(&["PING"]).await.text(), "PONG");
    fixture.proxy.mute();
    fixture.assert_silent(&["SET", "k", "1"]).await;
    // Unlike on a silenced connection, commands still reach the server.
    assert!(fixture.is_set("k").await);
    fixture.proxy.kill(End::Reset);
    assert_eq!(
        end_of_connection(fixture.through.next().await),
        ErrorKind::ConnectionReset
    );
    let refused = TcpStream::connect(address).expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    fixture.proxy.forward();
    fixture.proxy.accept().await;
    let mut again = Raw::connect(fixture.proxy.port()).await;
    assert_eq!(again.cmd(&["GET", "k"]).await.text(), "1");
}
