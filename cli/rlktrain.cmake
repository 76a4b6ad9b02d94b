#rlktrain : the reference workload(docs / replay.md).
rlk_add_program(rlktrain rlktrain.c rlktrain_print.c rlktrain_save.c)
    target_link_libraries(rlktrain PRIVATE rlk_cli_common rlk_replayer OpenSSL::Crypto)
