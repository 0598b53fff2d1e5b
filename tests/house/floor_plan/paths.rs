//! The paths in a file's code, such as `crate::key::Key`.

/// `crate::key::Key` as `["crate", "key", "Key"]`.
pub(crate) type Segments = Vec<String>;

/// A path in a file's code.
pub(crate) struct NamedPath {
    pub(crate) segments: Segments,
    /// Its name in the file, if it is imported there.
    pub(crate) imported_as: Option<String>,
}

/// All paths in the code, except those that begin with a macro's `$crate`, which are used by the macro's callers.
pub(crate) fn paths(code: &str) -> Vec<NamedPath> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        let is_import = before == "use";
        let is_path = tokens.get(at + 1) == Some(&"::") && !["::", "$"].contains(&before);
        if is_name(token) && (is_import || is_path) && !is_within_import(&tokens[..at]) {
            let mut trees = Vec::new();
            read(&tokens[at..], Vec::new(), &mut trees);
            found.extend(trees.into_iter().map(|(segments, name)| NamedPath {
                segments,
                imported_as: is_import.then_some(name),
            }));
        }
    }
    found
}

/// True inside of a `use`, after its first name: the whole tree of the `use` is read from that name on.
fn is_within_import(before: &[&str]) -> bool {
    let last = before
        .iter()
        .rposition(|token| ["use", ";"].contains(token));
    last.is_some_and(|last| before[last] == "use" && last + 1 < before.len())
}

/// Reads the paths of one tree of a `use`, each with the name that it is imported as. Returns the tokens after the
/// tree.
fn read<'a>(
    mut tokens: &'a [&'a str],
    mut path: Segments,
    found: &mut Vec<(Segments, String)>,
) -> &'a [&'a str] {
    while let [first, rest @ ..] = tokens {
        if *first == "{" {
            return read_group(rest, &path, found);
        }
        path.push((*first).to_owned());
        tokens = rest;
        let ["::", rest @ ..] = tokens else { break };
        tokens = rest;
    }
    if path.len() > 1 {
        path.pop_if(|last| last == "self");
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if let ["as", alias, rest @ ..] = tokens {
        name = (*alias).to_owned();
        tokens = rest;
    }
    found.push((path, name));
    tokens
}

fn read_group<'a>(
    mut tokens: &'a [&'a str],
    path: &Segments,
    found: &mut Vec<(Segments, String)>,
) -> &'a [&'a str] {
    loop {
        match tokens {
            [] => return tokens,
            ["}", rest @ ..] => return rest,
            [",", rest @ ..] => tokens = rest,
            _ => tokens = read(tokens, path.clone(), found),
        }
    }
}

/// The tokens of the code: names, `::`, and all other characters one by one, without blanks.
fn tokens(mut code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    while let Some(first) = code.chars().next() {
        let name = code.find(|c| !is_of_name(c)).unwrap_or(code.len());
        let length = match first {
            _ if name > 0 => name,
            ':' if code.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, rest) = code.split_at(length);
        tokens.push(token);
        code = rest;
    }
    tokens.retain(|token| !token.trim().is_empty());
    tokens
}

fn is_name(token: &str) -> bool {
    token.chars().all(is_of_name)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
