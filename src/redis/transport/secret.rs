//! A server, or a proxy, that does not know `HELLO` or `AUTH` repeats what it was sent, the password too.
//!
//! Only the text is changed: the code and the server's own words say what the error means.

use redis::{Client, RedisError, make_extension_error};

/// What a server says of itself. A password that is one of these words is not hidden in them, because
/// a gap would show it.
const SENTENCES: &str = "\
    Authentication required. Password authentication failed, no such user, invalid password. \
    invalid username-password pair or user is disabled. \
    HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
    option can be used to authenticate the client and select the RESP protocol version at the same time. \
    AUTH <password> called without any password configured for the default user. Are you sure your \
    configuration is correct? Client sent AUTH, but no password is set. \
    unsupported protocol version. Protocol error: unauthenticated multibulk bulk length. \
    User has no permissions to run the 'select' command or its subcommand. \
    this user can't run this command. No permissions to access a key, one of the keys, a channel. \
    unknown command, syntax error, wrong number of arguments for 'auth' 'hello' command, unexpected end of input. \
    DB index is out of range, invalid DB index, SELECT is not allowed in cluster mode. \
    max number of clients reached. Redis is running in protected mode. \
    Redis is loading the dataset in memory. Link with MASTER is down. The cluster is down.";

/// The same error without what the server repeats, and without the password.
pub(in crate::redis) fn without_password(error: RedisError, client: &Client) -> RedisError {
    let password = client.get_connection_info().redis_settings().password();
    let Some(said) = error.detail() else {
        return error;
    };
    let rest = said.split(", with args beginning with").next();
    let told = hidden(rest.unwrap_or_default(), password.unwrap_or_default());
    match error.code() {
        _ if told == said => error,
        Some(code) => make_extension_error(code.to_owned(), Some(told)),
        None => (error.kind(), "the server refuses the connection", told).into(),
    }
}

/// The text without the words that have the secret, unless they are the server's own.
fn hidden(said: &str, secret: &str) -> String {
    let (mut told, mut rest) = (String::new(), said);
    while let Some(at) = rest.find(secret).filter(|_| !secret.is_empty()) {
        let start = rest[..at].rfind(' ').map_or(0, |space| space + 1);
        let end = at + secret.len();
        let end = rest[end..]
            .find(' ')
            .map_or(rest.len(), |space| end + space);
        let is_own = rest[start..end].split(' ').all(is_of_a_server);
        told += &rest[..start];
        told += if is_own { &rest[start..end] } else { "***" };
        rest = &rest[end..];
    }
    told + rest
}

fn is_of_a_server(word: &str) -> bool {
    let bare = |word: &str| word.trim_matches(['.', ',', '?', '\'', '`']).to_lowercase();
    SENTENCES.split(' ').any(|own| bare(own) == bare(word))
}

#[cfg(test)]
mod tests {
    use super::hidden;

    #[test]
    fn a_password_is_hidden_unless_it_is_the_servers_own_word() {
        let wrong = "invalid username-password pair or user is disabled.";
        for own in ["password", "user", "a", "is", "name", "-", "r or u", wrong] {
            assert_eq!(hidden(wrong, own), wrong, "{own}");
        }
        for (said, secret, told) in [
            ("unknown command 'x'", "x", "unknown command ***"),
            ("bad 'my horse' or 'my horse'", "my horse", "bad *** or ***"),
            ("User ann has no", "a", "User *** has no"),
            ("sent: password1", "password", "sent: ***"),
            ("sent: käse", "ä", "sent: ***"),
            ("sent: '!!!'", "!!!", "sent: ***"),
            ("sent: ''", "'", "sent: ***"),
            ("nothing", "", "nothing"),
        ] {
            assert_eq!(hidden(said, secret), told);
        }
    }
}
