//! All that is in the books at one moment, with a mark where that moment is in `MONITOR`.

use super::model::Model;
use crate::market::plan::now;
use std::io;
use testing::resp::{Raw, Reply};

/// Returns each sorted set of the library and its members. `ARGV[1]` is the mark.
const ALL: &str = "local all = {} \
    for _, key in ipairs(redis.call('KEYS', 'semaphore:*')) do \
      if redis.call('TYPE', key).ok == 'zset' then \
        all[#all + 1] = key \
        all[#all + 1] = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') \
      end \
    end \
    return all";

/// Reads the books, and leaves `mark` in `MONITOR`.
pub(super) async fn read(raw: &mut Raw, mark: &str) -> io::Result<Model> {
    let all = raw.try_cmd(&["EVAL", ALL, "0", mark]).await?;
    if let Reply::Error(error) = all {
        return Err(io::Error::other(error));
    }
    let mut model = Model::default();
    for pair in all.array().chunks_exact(2) {
        let members = pair[1].array().chunks_exact(2);
        let members: Vec<_> = members.map(member_and_score).collect();
        model.load(now(), pair[0].text(), &members);
    }
    Ok(model)
}

fn member_and_score(pair: &[Reply]) -> (String, f64) {
    let score = pair[1].text().parse().expect("a score is a number");
    (pair[0].text().to_owned(), score)
}
