//! Plants a bug of `planted.md` in the core of a copy of the repository: `plant NAME FOLDER`.

use std::{env, fs, path::Path};
use tower_semaphore_sim::planted::bugs;

fn main() {
    let [name, folder] = [1, 2].map(|at| env::args().nth(at).expect("`plant NAME FOLDER`"));
    let bug = bugs("In the core").into_iter().find(|bug| bug.name == name);
    let bug = bug.expect("`planted.md` has a bug of this name");
    let path = bug.path(Path::new(&folder));
    let text = fs::read_to_string(&path).expect("the core has the file");
    assert!(bug.fits(&text), "{path:?}: {:?}", bug.old);
    fs::write(&path, text.replace(&bug.old, &bug.new)).expect("the copy can be written");
}
