//! The app behind nginx and under our layer, and the client of both.
//!
//! serve STORE | rates SECONDS ADDRESS… | contend ADDRESS PATH | hold ADDRESS ACCOUNT |
//! wait ADDRESS ACCOUNT | fleet ADDRESS ADDRESS

mod app;
mod contend;
mod rates;
mod streams;

use std::{env, error::Error, net::SocketAddr};

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", store] => app::serve(store).await?,
        ["rates", seconds, ref apps @ ..] => rates::run(seconds.parse()?, &parse(apps)?).await,
        ["contend", app, path] => contend::run(app.parse()?, path).await,
        ["hold", app, account] => streams::hold(app.parse()?, account).await,
        ["wait", app, account] => streams::wait(app.parse()?, account).await,
        ["fleet", ref apps @ ..] => streams::fleet(&parse(apps)?).await,
        _ => return Err("see the head of this file".into()),
    }
    Ok(())
}

fn parse(addresses: &[&str]) -> Result<Vec<SocketAddr>, BoxError> {
    let addresses = addresses.iter().map(|address| Ok(address.parse()?));
    addresses.collect()
}
