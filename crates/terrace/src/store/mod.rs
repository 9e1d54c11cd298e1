//! What every part of an open store needs: whether it may write ([`health`]), the file that is given up
//! when the disk is full ([`reserve`]), and the bound on background writes ([`rate_limit`]).

pub(crate) mod health;
pub(crate) mod rate_limit;
pub(crate) mod reserve;
