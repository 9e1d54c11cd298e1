//! Rare work on a whole store: column families come and go ([`families`]), a second directory is made
//! ([`checkpoint`]), everything is read and checked ([`verify`]).

pub(crate) mod checkpoint;
pub(crate) mod families;
pub(crate) mod verify;
