# Who may use whom: the one table, which check-includes.sh (of headers) and check-symbols.sh (of objects) read. Sourced.
# Left never uses right: base < backend < graph < io < train < plugin < cli;   data uses base only, train and what is right of it use data

rooms='base backend data graph io train plugin cli'

allowed() { # rooms that a file of room $1 may use
	case $1 in
	base) echo base ;;
	backend) echo base backend ;;
	data) echo base data ;;
	graph) echo base backend graph ;;
	io) echo base backend graph io ;;
	train) echo base backend graph io data train ;;
	plugin) echo base backend graph io data train plugin ;;
	cli) echo base backend graph io data train plugin cli ;;
	esac
}

# Rooms of the fsdp plugin: plan is pure (no MPI, no memory of tensors), comm moves bytes and knows no plan, run executes; wire.h
# holds the words that both plan and comm use.
plugin_rooms() { # what a file of folder $1 may use of the plugin beside its own
	case $1 in
	plugins/fsdp/plan) echo plan wire.h ;;
	plugins/fsdp/comm) echo comm wire.h ;;
	plugins/fsdp/run) echo plan comm run wire.h ;;
	plugins/fsdp) echo plan comm run ;;
	esac
}

# Files that alone call a library; one that is not there any more is a fault, too.
mpi_files='plugins/fsdp/comm/mesh.c plugins/fsdp/comm/coll_mpi.c'
dnnl_files='src/backend/cpu/dnn.c'
memory_files='src/base/mem.c'
