# Given to llama.cpp's build by .cargo/config.toml. Of its library `common` this program uses the grammars; what is left
# out here is most of it (an HTTP client, command lines, templates, parsers of chats) and half of the whole build.
if(PROJECT_NAME STREQUAL "llama.cpp" AND NOT CMAKE_VERSION VERSION_LESS 3.19)
    function(posse_leave_out)
        if(NOT TARGET llama-common)
            return()
        endif()
        get_target_property(sources llama-common SOURCES)
        list(FILTER sources EXCLUDE REGEX "^(arg|chat|console|debug|download|hf-cache|imatrix|peg-parser|preset|subproc)|^(jinja|parsers)/|/parsers/")
        set_target_properties(llama-common PROPERTIES SOURCES "${sources}")
        get_target_property(libraries llama-common LINK_LIBRARIES)
        list(FILTER libraries EXCLUDE REGEX "cpp-httplib")
        set_target_properties(llama-common PROPERTIES LINK_LIBRARIES "${libraries}")
        if(TARGET cpp-httplib)
            set_target_properties(cpp-httplib PROPERTIES EXCLUDE_FROM_ALL ON)
        endif()
    endfunction()
    cmake_language(DEFER CALL posse_leave_out)
endif()

# Which instructions the compiler may use. llama.cpp's build takes AVX2 unless it is told more; with what this machine
# has beyond it a prompt is read in half the time, by kernels that take the weights as they stand in the file (laid out
# anew for AVX2 they would be kept twice). GGML_AVX512=OFF in the environment builds for machines that have AVX2 alone.
if(NOT DEFINED CACHE{GGML_AVX512} AND NOT CMAKE_CROSSCOMPILING AND CMAKE_C_COMPILER)
    execute_process(COMMAND "${CMAKE_C_COMPILER}" -march=native -dM -E -x c /dev/null
        OUTPUT_VARIABLE posse_has ERROR_QUIET)
    set(posse_wants AVX512F AVX512CD AVX512VL AVX512DQ AVX512BW AVX512VNNI AVX512VBMI)
    foreach(feature IN LISTS posse_wants)
        if(NOT posse_has MATCHES "__${feature}__")
            set(posse_lacks ON)
        endif()
    endforeach()
    if(NOT posse_lacks)
        foreach(option GGML_AVX512 GGML_AVX512_VNNI GGML_AVX512_VBMI)
            set(${option} ON CACHE BOOL "" FORCE)
        endforeach()
        set(GGML_CPU_REPACK OFF CACHE BOOL "" FORCE)
    endif()
endif()
