//! A server that is not one of ours but holds our certificates: what it is sent, and what becomes of its answers.
