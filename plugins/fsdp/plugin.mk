# Open MPI: the fabric of coll_mpi.c and mesh.c. Once started, MPI has threads and exit handlers: the plugin is never unmapped.
fsdp_CFLAGS := -Iplugins/fsdp $(shell mpicc --showme:compile)
fsdp_LIBS := $(shell mpicc --showme:link) -lcjson -lxxhash -Wl,-z,nodelete
