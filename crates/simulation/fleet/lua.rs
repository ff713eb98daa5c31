//! Scripts of the Redis state, run as they are by Lua 5.1, the interpreter of Redis. `redis.call` and `struct`, which
//! Redis adds to Lua, are bound here to the simulated server.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Value, Variadic};

use super::database::{Bytes, Database, Write};

const BUCKET: &str = include_str!("../../state/src/redis/scripts/bucket.lua");
const SLOT_LEASES: &str = include_str!("../../state/src/redis/scripts/slot_leases.lua");
const DECIDE: &str = include_str!("../../state/src/redis/scripts/decide.lua");
const SLOT_REPORT: &str = include_str!("../../state/src/redis/scripts/slot_report.lua");
const HEARTBEAT: &str = include_str!("../../state/src/redis/scripts/heartbeat.lua");
const SIGN_OF_LIFE: &str = include_str!("../../state/src/redis/scripts/sign_of_life.lua");
const ASSERT_REVOCATIONS: &str = include_str!("../../state/src/redis/scripts/assert_revocations.lua");

/// An expression of a script, and another one in its place.
pub type Patch = (&'static str, &'static str);

/// A script of the Redis state.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    Decide,
    SlotReport,
    Heartbeat,
    AssertRevocations,
    SignOfLife,
}

/// Reply of a script.
#[derive(Clone, Debug)]
pub enum Reply {
    Packed(Vec<u8>),
    /// Records as lists of fields and values.
    Records(Vec<Vec<Bytes>>),
    Number,
}

/// The server on which a script runs: its records, its clock, and the writes that the script made.
#[derive(Default)]
pub struct Running {
    pub database: Database,
    pub micros: u64,
    pub writes: Vec<Write>,
    /// Fields that scripts have read with HGETALL: what their cost grows with.
    pub fields_read: u64,
}

/// Interpreter with all scripts.
pub struct Scripts {
    lua: Lua,
    functions: [Function; 5],
    running: Rc<RefCell<Running>>,
    /// Broken on purpose: the heartbeat, and its twin.
    pub believes_lost_registry: bool,
}

impl Scripts {
    /// The scripts with these patches, which break them on purpose.
    ///
    /// # Panics
    /// A patch is of an expression that no script has.
    pub fn new(patches: &[Patch]) -> Self {
        let lua = Lua::new();
        let running = Rc::<RefCell<Running>>::default();
        bind(&lua, &running);
        // As `crates/state/src/redis/scripts.rs` puts them together.
        let mut texts = [
            [BUCKET, SLOT_LEASES, DECIDE].concat(),
            [BUCKET, SLOT_LEASES, SLOT_REPORT].concat(),
            [BUCKET, HEARTBEAT].concat(),
            ASSERT_REVOCATIONS.to_owned(),
            [BUCKET, SIGN_OF_LIFE].concat(),
        ];
        for (expression, by) in patches {
            let is_there = texts.iter().any(|text| text.contains(expression));
            assert!(is_there, "no script has {expression} any more");
            texts = texts.map(|text| text.replace(expression, by));
        }
        let functions = texts.map(|text| lua.load(text).into_function().unwrap());
        Self { lua, functions, running, believes_lost_registry: false }
    }

    /// Runs a script on a server; `running` is that server's.
    pub fn run(&self, script: Script, running: &mut Running, keys: &[&[u8]], arguments: &[&[u8]]) -> Reply {
        let globals = self.lua.globals();
        let list = |items: &[&[u8]]| {
            self.lua.create_sequence_from(items.iter().map(|item| self.lua.create_string(item).unwrap())).unwrap()
        };
        globals.set("KEYS", list(keys)).unwrap();
        globals.set("ARGV", list(arguments)).unwrap();
        std::mem::swap(&mut *self.running.borrow_mut(), running);
        let value: Value = self.functions[script as usize].call(()).unwrap();
        std::mem::swap(&mut *self.running.borrow_mut(), running);
        match value {
            Value::String(packed) => Reply::Packed(packed.as_bytes().to_vec()),
            Value::Table(records) => Reply::Records(
                records
                    .sequence_values::<Vec<mlua::String>>()
                    .map(|fields| fields.unwrap().iter().map(|field| Bytes::from(&*field.as_bytes())).collect())
                    .collect(),
            ),
            Value::Integer(_) | Value::Number(_) => Reply::Number,
            other => panic!("{script:?} returned {other:?}"),
        }
    }
}

fn bind(lua: &Lua, running: &Rc<RefCell<Running>>) {
    let call = lua.create_table().unwrap();
    let packing = lua.create_table().unwrap();
    let running = Rc::clone(running);
    let function = lua.create_function(move |lua, words: Variadic<Value>| call_redis(lua, &running, &words)).unwrap();
    call.set("call", function).unwrap();
    lua.globals().set("redis", call).unwrap();
    packing.set("pack", lua.create_function(pack).unwrap()).unwrap();
    packing.set("unpack", lua.create_function(unpack).unwrap()).unwrap();
    lua.globals().set("struct", packing).unwrap();
}

/// A word of a command as bytes.
fn bytes(lua: &Lua, value: &Value) -> mlua::Result<Bytes> {
    Ok(match value {
        Value::String(text) => Bytes::from(&*text.as_bytes()),
        other => Bytes::from(&*lua.coerce_string(other.clone())?.unwrap().as_bytes()),
    })
}

/// The commands that the scripts use. The first word is the command, the second the record.
fn call_redis(lua: &Lua, running: &RefCell<Running>, words: &[Value]) -> mlua::Result<Value> {
    let mut running = running.borrow_mut();
    let Value::String(command) = &words[0] else { panic!("a command is text") };
    let command = command.as_bytes();
    if &*command == b"TIME" {
        let micros = running.micros;
        let parts = [micros / 1_000_000, micros % 1_000_000].map(|part| lua.create_string(part.to_string()).unwrap());
        return Ok(Value::Table(lua.create_sequence_from(parts)?));
    }
    let record = bytes(lua, &words[1])?;
    let text = |value: Option<&Bytes>| -> mlua::Result<Value> {
        Ok(match value {
            Some(value) => Value::String(lua.create_string(value)?),
            None => Value::Boolean(false),
        })
    };
    match &*command {
        b"HGET" => text(running.database.field(&record, &bytes(lua, &words[2])?)),
        b"HMGET" => {
            let table = lua.create_table_with_capacity(words.len() - 2, 0)?;
            for (at, field) in (1..).zip(&words[2..]) {
                table.raw_set(at, text(running.database.field(&record, &bytes(lua, field)?))?)?;
            }
            Ok(Value::Table(table))
        }
        b"HGETALL" => {
            let table = lua.create_table()?;
            let fields = running.database.fields(&record).into_iter().flatten();
            for (at, item) in (1..).zip(fields.flat_map(|(field, value)| [field, value])) {
                table.raw_set(at, lua.create_string(item)?)?;
            }
            running.fields_read += running.database.fields(&record).map_or(0, |fields| fields.len() as u64);
            Ok(Value::Table(table))
        }
        b"HSET" => {
            let mut added = 0;
            for pair in words[2..].chunks(2) {
                let field = bytes(lua, &pair[0])?;
                let value = bytes(lua, &pair[1])?;
                added += i64::from(running.write(Write::Set { record: Rc::clone(&record), field, value }));
            }
            Ok(Value::Integer(added))
        }
        b"HDEL" => {
            let field = bytes(lua, &words[2])?;
            Ok(Value::Integer(i64::from(running.write(Write::Remove { record, field }))))
        }
        b"EXISTS" => Ok(Value::Integer(i64::from(running.database.fields(&record).is_some()))),
        b"HLEN" => {
            let fields = running.database.fields(&record).map_or(0, |fields| fields.len());
            Ok(Value::Integer(i64::try_from(fields).unwrap()))
        }
        b"DEL" => Ok(Value::Integer(i64::from(running.write(Write::Delete { record })))),
        // No run is as long as a day.
        b"EXPIRE" => Ok(Value::Integer(1)),
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

impl Running {
    pub fn write(&mut self, write: Write) -> bool {
        self.writes.push(write.clone());
        self.database.apply(write)
    }
}

/// The letters of a format: `d`, a double, and `c8`, eight bytes. The scripts use no others.
fn letters(format: &[u8]) -> impl Iterator<Item = u8> {
    assert_eq!(format[0], b'<');
    format[1..].iter().copied().filter(|letter| *letter != b'8')
}

/// `struct.pack` of Redis.
fn pack(lua: &Lua, mut values: Variadic<Value>) -> mlua::Result<mlua::String> {
    let format = values.remove(0);
    let Value::String(format) = format else { panic!("a format is text") };
    let mut packed = Vec::with_capacity(64);
    for (letter, value) in letters(&format.as_bytes()).zip(values.iter()) {
        match (letter, value) {
            (b'c', Value::String(text)) => packed.extend_from_slice(&text.as_bytes()[..8]),
            (b'd', value) => packed.extend_from_slice(&lua.coerce_number(value.clone())?.unwrap().to_le_bytes()),
            _ => panic!("format {letter}"),
        }
    }
    lua.create_string(&packed)
}

/// `struct.unpack` of Redis: the values, then the position behind them.
fn unpack(lua: &Lua, (format, packed, from): (mlua::String, mlua::String, Option<usize>)) -> mlua::Result<MultiValue> {
    let format = format.as_bytes();
    let packed = packed.as_bytes();
    let mut at = from.map_or(0, |from| from - 1);
    let mut values = Vec::with_capacity(17);
    for letter in letters(&format) {
        let part = &packed[at..at + 8];
        at += 8;
        values.push(match letter {
            b'c' => Value::String(lua.create_string(part)?),
            _ => Value::Number(f64::from_le_bytes(part.try_into().unwrap())),
        });
    }
    values.push(Value::Integer(i64::try_from(at + 1).unwrap()));
    Ok(MultiValue::from_vec(values))
}
