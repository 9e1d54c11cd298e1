//! What protox and tonic made of `proto/etcd.proto`.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

tonic::include_proto!("etcdserverpb");
