//! Runs the scripts in the same version of Lua as Redis, with `redis.call` on the stand-in.

use crate::{
    scripts::{Scripts, Verb},
    stand_in::{Reply, StandIn},
};
use mlua::{Error, Function, IntoLua, Lua, MultiValue, Table, Value};
use std::{cell::RefCell, rc::Rc};

/// The set of globals is fixed, as in Redis: a script that sets or reads another global fails.
const SEALED: &str = "
    setmetatable(_G, {
      __newindex = function(_, name) error('script attempted to create global ' .. name) end,
      __index = function(_, name) error('script attempted to access global ' .. name) end,
    })";

/// Runs scripts.
#[derive(Debug)]
pub struct Runner {
    lua: Lua,
    server: Rc<RefCell<StandIn>>,
    scripts: Vec<Function>,
}

impl Runner {
    /// Compiles scripts.
    ///
    /// # Errors
    ///
    /// If a script is not Lua.
    pub fn new(scripts: &Scripts) -> Result<Self, Error> {
        let (lua, server) = (Lua::new(), Rc::<RefCell<StandIn>>::default());
        let redis = lua.create_table()?;
        let called = Rc::clone(&server);
        let call = lua.create_function(move |lua, args: MultiValue| {
            let args = args.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let reply = called.borrow_mut().command(&args);
            to_lua(lua, reply.map_err(Error::runtime)?)
        })?;
        redis.set("call", call)?;
        lua.globals().set("redis", redis)?;
        lua.load(SEALED).exec()?;
        let scripts = scripts.all().map(|script| lua.load(script).into_function());
        let scripts = scripts.collect::<Result<_, _>>()?;
        Ok(Self {
            lua,
            server,
            scripts,
        })
    }

    /// Runs a script on the server, and keeps the script's changes in it.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub fn run(
        &self,
        verb: Verb,
        server: &mut StandIn,
        keys: &[String],
        args: &[String],
    ) -> Result<Reply, Error> {
        let globals = self.lua.globals();
        globals.raw_set("KEYS", keys)?;
        globals.raw_set("ARGV", args)?;
        server.begin(keys);
        self.server.swap(&RefCell::new(std::mem::take(server)));
        let result = self.scripts[verb as usize].call::<Value>(());
        *server = self.server.take();
        server.declared = None;
        from_lua(&result?)
    }
}

/// An argument of a command.
fn argument(value: &Value) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.to_str()?.to_owned()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Number(number) if number.fract() == 0.0 => Ok(format!("{number:.0}")),
        other => {
            let kind = other.type_name();
            Err(Error::runtime(format!(
                "a command has a {kind} as argument"
            )))
        }
    }
}

fn to_lua(lua: &Lua, reply: Reply) -> Result<Value, Error> {
    match reply {
        Reply::Int(number) => Ok(Value::Number(number as f64)),
        Reply::Text(text) => text.into_lua(lua),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Status(text) => {
            let table = lua.create_table()?;
            table.set("ok", text)?;
            Ok(Value::Table(table))
        }
        Reply::List(items) => {
            let items = items.into_iter().map(|item| to_lua(lua, item));
            let table = lua.create_sequence_from(items.collect::<Result<Vec<_>, _>>()?)?;
            Ok(Value::Table(table))
        }
    }
}

fn from_lua(value: &Value) -> Result<Reply, Error> {
    match value {
        Value::Nil | Value::Boolean(false) => Ok(Reply::Nil),
        Value::Boolean(true) => Ok(Reply::Int(1)),
        Value::Integer(number) => Ok(Reply::Int(*number)),
        Value::Number(number) => Ok(Reply::Int(*number as i64)),
        Value::String(text) => Ok(Reply::Text(text.to_str()?.to_owned())),
        Value::Table(table) => list(table),
        other => Err(Error::runtime(format!("a reply of {}", other.type_name()))),
    }
}

/// A list ends before its first `nil`, as in Redis.
fn list(table: &Table) -> Result<Reply, Error> {
    let mut items = Vec::new();
    loop {
        let item: Value = table.raw_get(items.len() + 1)?;
        if item.is_nil() {
            return Ok(Reply::List(items));
        }
        items.push(from_lua(&item)?);
    }
}
