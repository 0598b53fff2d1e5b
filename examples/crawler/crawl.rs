//! Follows all links from a page.

use crate::{BoxError, web::Web};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashSet;
use tokio::task::JoinSet;

/// Reads every reachable page once. Returns the number of pages.
///
/// All known links are requested at once, and each host's service makes them wait.
pub(crate) async fn crawl(web: &Web, start: String) -> Result<usize, BoxError> {
    let bar = progress_bar();
    let mut seen = HashSet::new();
    let mut reads = JoinSet::new();
    let mut found = vec![start];
    loop {
        for link in found {
            if seen.insert(link.clone()) {
                bar.inc_length(1);
                let web = web.clone();
                reads.spawn(async move { Ok::<_, BoxError>(links(&web.page(&link).await?)) });
            }
        }
        let Some(read) = reads.join_next().await else {
            break;
        };
        found = read??;
        bar.inc(1);
    }
    bar.finish();
    Ok(seen.len())
}

fn links(page: &str) -> Vec<String> {
    let references = page.split("href=\"").skip(1);
    let links = references.filter_map(|rest| rest.split_once('"'));
    links.map(|(link, _)| link.to_owned()).collect()
}

/// A progress bar, which is drawn only on a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} pages, {per_sec}");
    ProgressBar::new(0).with_style(style.expect("the template is valid"))
}
