//! store-etcd
